-- Each priority that has pending jobs, highest first: one seek a tier, however many rows it has.
WITH RECURSIVE tier (priority) AS (
    SELECT max(priority) FROM yaoki.jobs WHERE status = 'pending'
    UNION ALL
    SELECT (
        SELECT max(below.priority) FROM yaoki.jobs AS below
        WHERE below.status = 'pending' AND below.priority < tier.priority
    )
    FROM tier
    WHERE tier.priority IS NOT NULL
)
SELECT
    tier.priority,
    EXISTS (
        SELECT 1 FROM yaoki.jobs AS due
        WHERE due.status = 'pending' AND due.priority = tier.priority AND due.run_at <= :now
    ),
    (
        SELECT min(later.run_at) FROM yaoki.jobs AS later
        WHERE later.status = 'pending' AND later.priority = tier.priority AND later.run_at > :now
    )
FROM tier
WHERE tier.priority IS NOT NULL;
