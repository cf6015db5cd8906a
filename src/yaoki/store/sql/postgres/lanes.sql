-- Each (type, queue, priority) of these types that has pending jobs which may be taken, in any
-- queue: one seek a lane.
WITH RECURSIVE lane (type, queue, priority) AS (
    SELECT first.type, first.queue, first.priority
    FROM unnest(:types) AS wanted (type)
    CROSS JOIN LATERAL (
        SELECT head.type, head.queue, head.priority FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL AND head.type = wanted.type
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.type, following.queue, following.priority
    FROM lane
    CROSS JOIN LATERAL (
        SELECT head.type, head.queue, head.priority FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL AND head.type = lane.type
            AND (head.queue, head.priority) > (lane.queue, lane.priority)
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS following
)
SELECT type, queue, priority FROM lane
WHERE queue <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'queue'))
    AND type <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'type'));
