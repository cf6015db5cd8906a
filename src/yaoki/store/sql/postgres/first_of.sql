-- The first :limit of these jobs, which are in the order of claims, that nobody else has locked.
SELECT job.*
FROM unnest(:ids) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT * FROM yaoki.jobs AS mine
    WHERE mine.id = wanted.id
        AND CASE mine.status WHEN 'pending' THEN mine.run_at <= :now ELSE false END
    FOR NO KEY UPDATE SKIP LOCKED
) AS job
LIMIT :limit;
