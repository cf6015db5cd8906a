-- All that a worker holds, as its supervisor looks at it.
SELECT id, lease, lease_expires_at - :now, lease_for, :now - started_at, timeout
FROM yaoki.jobs
WHERE lease % 2 = 1 AND worker_id = :worker_id
ORDER BY id;
