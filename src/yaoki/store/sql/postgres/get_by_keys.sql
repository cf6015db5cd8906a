SELECT * FROM yaoki.jobs
WHERE idempotency_key = ANY(:keys);
