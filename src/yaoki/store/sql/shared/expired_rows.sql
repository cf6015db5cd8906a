SELECT id, lease, lease_expires_at, type, worker_id, attempt, backoff, rescues, started_at
FROM yaoki.jobs
WHERE lease % 2 = 1 AND lease_expires_at <= :now
ORDER BY id
LIMIT :limit;
