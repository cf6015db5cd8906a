SELECT * FROM yaoki.jobs
WHERE lease % 2 = 1 AND id IN (SELECT value FROM json_each(:ids))
ORDER BY id;
