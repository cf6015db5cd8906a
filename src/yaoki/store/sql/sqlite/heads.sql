-- The first pending job of each (type, queue, priority), paused or not: at most three seeks a lane,
-- however many jobs it has. (Every type is > ''; said so, the first is found by the index, too.)
WITH RECURSIVE lane (id, type, queue, priority, run_at) AS (
    SELECT id, type, queue, priority, run_at FROM (
        SELECT id, type, queue, priority, run_at FROM yaoki.jobs
        WHERE status = 'pending' AND type > ''
        ORDER BY type, queue, priority, run_at, id
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.id, following.type, following.queue, following.priority, following.run_at
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
        ),
        (
            SELECT head.id FROM yaoki.jobs AS head
            WHERE head.status = 'pending' AND head.type > lane.type
            ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
            LIMIT 1
        )
    )
)
SELECT type, queue, priority, run_at, id FROM lane LIMIT :limit;
