-- Each type that has pending jobs: one seek a type.
WITH RECURSIVE kind (type) AS (
    (
        SELECT type FROM yaoki.jobs WHERE lease % 2 = 0 AND finished_at IS NULL
        ORDER BY type, queue, priority, run_at, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.type
    FROM kind
    CROSS JOIN LATERAL (
        SELECT head.type FROM yaoki.jobs AS head
        WHERE head.lease % 2 = 0 AND head.finished_at IS NULL AND head.type > kind.type
        ORDER BY head.type, head.queue, head.priority, head.run_at, head.id
        LIMIT 1
    ) AS following
)
SELECT type FROM kind;
