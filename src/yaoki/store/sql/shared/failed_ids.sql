SELECT id FROM yaoki.jobs
WHERE status = 'failed' AND id > :after AND (:type IS NULL OR type = :type)
    AND (:queue IS NULL OR queue = :queue)
ORDER BY id
LIMIT :limit;
