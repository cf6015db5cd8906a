SELECT * FROM yaoki.jobs
WHERE lease % 2 = 1 AND worker_id = :worker_id
ORDER BY id
LIMIT :limit;
