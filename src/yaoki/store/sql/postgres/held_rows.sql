-- A row that is locked belongs to somebody who lives.
SELECT id, lease, lease_expires_at, type, worker_id, attempt, backoff, rescues, started_at
FROM yaoki.jobs
WHERE lease % 2 = 1 AND id = ANY(:ids)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED;
