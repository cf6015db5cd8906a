-- The same in these queues only: other queues cost nothing, however many there are.
WITH RECURSIVE
wanted (type, queue) AS (
    SELECT types.value, queues.value
    FROM json_each(:types) AS types
    CROSS JOIN json_each(:queues) AS queues
    WHERE queues.value NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'queue')
        AND types.value NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'type')
),
lane (type, queue, priority) AS (
    SELECT
        wanted.type,
        wanted.queue,
        (
            SELECT min(head.priority) FROM yaoki.jobs AS head
            WHERE head.status = 'pending' AND head.type = wanted.type
                AND head.queue = wanted.queue
        )
    FROM wanted
    UNION ALL
    SELECT
        lane.type,
        lane.queue,
        (
            SELECT min(head.priority) FROM yaoki.jobs AS head
            WHERE head.status = 'pending' AND head.type = lane.type AND head.queue = lane.queue
                AND head.priority > lane.priority
        )
    FROM lane
    WHERE lane.priority IS NOT NULL
)
SELECT type, queue, priority FROM lane WHERE priority IS NOT NULL;
