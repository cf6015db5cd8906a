-- The row is locked first: else the job could be put back and end again between the statements, and
-- leave the record of an attempt behind.
SELECT id FROM yaoki.jobs WHERE id = :id FOR UPDATE;
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
