-- Each type that has pending jobs: one seek a type.
WITH RECURSIVE kind (type) AS (
    SELECT min(type) FROM yaoki.jobs WHERE status = 'pending'
    UNION ALL
    SELECT (
        SELECT min(following.type) FROM yaoki.jobs AS following
        WHERE following.status = 'pending' AND following.type > kind.type
    )
    FROM kind
    WHERE kind.type IS NOT NULL
)
SELECT type FROM kind WHERE type IS NOT NULL;
