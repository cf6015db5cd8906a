SELECT id, lease FROM yaoki.jobs
WHERE id = ANY(:ids) AND cancel_requested_at IS NOT NULL;
