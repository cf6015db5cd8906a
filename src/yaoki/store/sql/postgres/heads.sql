-- The first pending job of each (type, queue, priority), paused or not: one seek a lane, however
-- many jobs it has.
WITH RECURSIVE lane (type, queue, priority, run_at, id) AS (
    (
        SELECT type, queue, priority, run_at, id FROM yaoki.jobs
        WHERE lease % 2 = 0 AND finished_at IS NULL
        ORDER BY type, queue, priority, run_at, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.type, following.queue, following.priority, following.run_at, following.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT head.type, head.queue, head.priority, head.run_at, head.id
        FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL
            AND (head.type, head.queue, head.priority) > (lane.type, lane.queue, lane.priority)
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS following
)
SELECT type, queue, priority, run_at, id FROM lane LIMIT :limit;
