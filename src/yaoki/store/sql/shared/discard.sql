DELETE FROM yaoki.attempts
WHERE job_id IN (
    SELECT id FROM yaoki.jobs
    WHERE id = :id AND status IN ('completed', 'failed', 'cancelled')
);
DELETE FROM yaoki.jobs WHERE id = :id AND status IN ('completed', 'failed', 'cancelled');
