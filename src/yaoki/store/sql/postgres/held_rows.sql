-- A row that is locked belongs to somebody who lives.
SELECT * FROM yaoki.jobs
WHERE lease % 2 = 1 AND id = ANY(:ids)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED;
