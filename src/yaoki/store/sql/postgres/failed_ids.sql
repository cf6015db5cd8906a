-- Locked in the order of id: who puts jobs back at the same time waits here, and then finds those
-- that are still failed.
SELECT id FROM yaoki.jobs
WHERE status = 'failed' AND id > :after AND (:type IS NULL OR type = :type)
    AND (:queue IS NULL OR queue = :queue)
ORDER BY id
LIMIT :limit
FOR NO KEY UPDATE;
