-- Jobs that were enqueued by name before anybody had said what their type is. One that is locked is
-- being claimed, by a worker whose own definition decides, or is in an operator's hands: it is taken
-- in the next time.
UPDATE yaoki.jobs SET
    queue = CASE WHEN said & 1 = 0 THEN :queue ELSE queue END,
    priority = CASE WHEN said & 2 = 0 THEN :priority ELSE priority END,
    max_attempts = CASE
        WHEN said & 4 = 0 THEN greatest(:max_attempts, attempt + 1)
        ELSE max_attempts
    END,
    timeout = CASE WHEN said & 8 = 0 THEN :timeout ELSE timeout END,
    said = said - 16,
    revision = revision + 1,
    updated_at = :now
WHERE id = ANY(ARRAY(
    SELECT id FROM yaoki.jobs
    WHERE lease % 2 = 0 AND finished_at IS NULL AND type = :type AND said & 16 <> 0
    ORDER BY type, id
    FOR NO KEY UPDATE SKIP LOCKED
));
