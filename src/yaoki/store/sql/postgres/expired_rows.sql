SELECT * FROM yaoki.jobs
WHERE lease % 2 = 1 AND lease_expires_at <= :now
ORDER BY id
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;
