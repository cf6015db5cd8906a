-- What the dead process itself had locked is free as soon as the server has noticed its death.
SELECT * FROM yaoki.jobs
WHERE lease % 2 = 1 AND worker_id = :worker_id
ORDER BY id
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;
