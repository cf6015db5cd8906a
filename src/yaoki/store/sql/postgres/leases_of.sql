SELECT id, lease FROM yaoki.jobs
WHERE id = ANY(:ids);
