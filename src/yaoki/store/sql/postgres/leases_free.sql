-- The same without those that somebody else has locked: they are not waited for.
SELECT id, lease FROM yaoki.jobs
WHERE id = ANY(:ids)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED;
