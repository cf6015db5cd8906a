SELECT id, lease FROM yaoki.jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND cancel_requested_at IS NOT NULL;
