-- Who ends several claims locks their rows in the order of id, whatever the plan.
SELECT id, lease FROM yaoki.jobs
WHERE id = ANY(:ids)
ORDER BY id
FOR NO KEY UPDATE;
