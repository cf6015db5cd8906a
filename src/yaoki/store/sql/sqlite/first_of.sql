-- The first :limit of these jobs, which are in the order of claims.
SELECT job.* FROM json_each(:ids) AS wanted
INNER JOIN yaoki.jobs AS job ON job.id = wanted.value
ORDER BY wanted.key
LIMIT :limit;
