-- All but the newest lines of a job.
DELETE FROM yaoki.logs
WHERE job_id = :id AND (lease, line) <= (
    SELECT lease, line FROM yaoki.logs
    WHERE job_id = :id
    ORDER BY job_id DESC, lease DESC, line DESC
    LIMIT 1 OFFSET :kept
);
