-- The same in these queues only: other queues cost nothing, however many there are.
WITH RECURSIVE
wanted (type, queue) AS (
    SELECT types.type, queues.queue
    FROM unnest(:types) AS types (type)
    CROSS JOIN unnest(:queues) AS queues (queue)
    WHERE queues.queue <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'queue'))
        AND types.type <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'type'))
),
lane (type, queue, priority) AS (
    SELECT first.type, first.queue, first.priority
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT head.type, head.queue, head.priority FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL
            AND head.type = wanted.type AND head.queue = wanted.queue
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.type, following.queue, following.priority
    FROM lane
    CROSS JOIN LATERAL (
        SELECT head.type, head.queue, head.priority FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL
            AND head.type = lane.type AND head.queue = lane.queue
            AND head.priority > lane.priority
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS following
)
SELECT type, queue, priority FROM lane;
