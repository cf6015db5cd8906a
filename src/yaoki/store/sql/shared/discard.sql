-- A job that has ended, with all that was written down about it.
DELETE FROM yaoki.attempts
WHERE job_id IN (
    SELECT id FROM yaoki.jobs
    WHERE id = :id AND status IN ('completed', 'failed', 'cancelled')
);
DELETE FROM yaoki.logs
WHERE job_id IN (
    SELECT id FROM yaoki.jobs
    WHERE id = :id AND status IN ('completed', 'failed', 'cancelled')
);
DELETE FROM yaoki.jobs WHERE id = :id AND status IN ('completed', 'failed', 'cancelled');
