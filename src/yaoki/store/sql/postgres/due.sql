-- The first due jobs of one priority that may be taken, among the first :window due ones behind
-- a place in the line.
-- Each is locked as it is taken, and one that another claimer has is passed over, so as many are
-- locked as are returned. The second look is for what became of the row since the first; it names
-- no status by itself, so that no partial index seems to fit better than the primary key.
SELECT job.*
FROM (
    SELECT id, type, queue, rescues, attempt, max_attempts FROM yaoki.jobs
    WHERE status = 'pending' AND priority = :priority AND run_at <= :now
        AND (run_at, id) > (:after_run_at, :after_id)
    ORDER BY priority, run_at, id
    LIMIT :window
) AS head
CROSS JOIN LATERAL (
    SELECT * FROM yaoki.jobs AS mine
    WHERE mine.id = head.id
        AND CASE mine.status WHEN 'pending' THEN mine.run_at <= :now ELSE false END
    FOR NO KEY UPDATE SKIP LOCKED
) AS job
WHERE (:types IS NULL OR head.type = ANY(:types))
    AND (:queues IS NULL OR head.queue = ANY(:queues))
    AND head.queue <> ALL(:but_not)
    AND (
        :rescues_below IS NULL OR head.rescues = 0
        OR (head.rescues < :rescues_below AND head.attempt + 1 < head.max_attempts)
    )
    AND head.queue <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'queue'))
    AND head.type <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'type'))
LIMIT :limit;
