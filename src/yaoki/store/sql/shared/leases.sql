-- Every lease there is; the rescuer judges by what it saw before.
SELECT id, lease, lease_expires_at, lease_for, lease_expires_at <= :now
FROM yaoki.jobs
WHERE lease % 2 = 1
ORDER BY id;
