SELECT * FROM yaoki.jobs
WHERE idempotency_key IN (SELECT value FROM json_each(:keys));
