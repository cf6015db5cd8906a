-- Each (type, queue, priority) of these types that has pending jobs which may be taken, in any
-- queue: two seeks a lane. (A row value, (queue, priority) > (…), would use less of the index.)
WITH RECURSIVE
wanted (type) AS (SELECT value FROM json_each(:types)),
lane (id, type, queue, priority) AS (
    SELECT first.id, first.type, first.queue, first.priority
    FROM wanted
    INNER JOIN yaoki.jobs AS first ON first.id = (
        SELECT head.id FROM yaoki.jobs AS head
        WHERE head.status = 'pending' AND head.type = wanted.type
        ORDER BY head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    )
    UNION ALL
    SELECT following.id, following.type, following.queue, following.priority
    FROM lane
    INNER JOIN yaoki.jobs AS following ON following.id = coalesce(
        (
            SELECT head.id FROM yaoki.jobs AS head
            WHERE head.status = 'pending' AND head.type = lane.type AND head.queue = lane.queue
                AND head.priority > lane.priority
            ORDER BY head.priority, head.run_at, head.id
            LIMIT 1
        ),
        (
            SELECT head.id FROM yaoki.jobs AS head
            WHERE head.status = 'pending' AND head.type = lane.type AND head.queue > lane.queue
            ORDER BY head.queue, head.priority, head.run_at, head.id
            LIMIT 1
        )
    )
)
SELECT type, queue, priority FROM lane
WHERE queue NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'queue')
    AND type NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'type');
