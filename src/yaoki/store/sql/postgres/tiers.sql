-- Each priority that has pending jobs, highest first: one seek a tier, however many rows it has.
-- From the end of each line: at its head are the dead entries of what was claimed lately.
WITH RECURSIVE tier (priority) AS (
    (
        SELECT priority FROM yaoki.jobs WHERE status = 'pending'
        ORDER BY priority DESC, run_at DESC, id DESC
        LIMIT 1
    )
    UNION ALL
    SELECT below.priority
    FROM tier
    CROSS JOIN LATERAL (
        SELECT head.priority FROM yaoki.jobs AS head
        WHERE head.status = 'pending' AND head.priority < tier.priority
        ORDER BY head.priority DESC, head.run_at DESC, head.id DESC
        LIMIT 1
    ) AS below
)
SELECT
    tier.priority,
    (
        SELECT last.run_at FROM yaoki.jobs AS last
        WHERE last.status = 'pending' AND last.priority = tier.priority
            AND last.run_at <= clock.now
        ORDER BY last.priority DESC, last.run_at DESC, last.id DESC
        LIMIT 1
    ) IS NOT NULL,
    (
        SELECT later.run_at FROM yaoki.jobs AS later
        WHERE later.status = 'pending' AND later.priority = tier.priority
            AND later.run_at > clock.now
        ORDER BY later.priority, later.run_at, later.id
        LIMIT 1
    ),
    clock.now AS now
FROM (SELECT :now AS now) AS clock
LEFT JOIN tier ON true;
