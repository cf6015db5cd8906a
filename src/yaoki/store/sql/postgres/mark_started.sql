-- Those of jobs that were claimed ahead and have begun; nobody's lock is waited for.
WITH marked AS MATERIALIZED (
    SELECT mine.id, :now - one.ran_for AS started_at
    FROM json_to_recordset(:many::json) AS one (id bigint, lease bigint, ran_for bigint)
    CROSS JOIN LATERAL (
        SELECT held.id FROM yaoki.jobs AS held
        WHERE held.id = one.id AND held.lease = one.lease AND held.started_at IS NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS mine
)
UPDATE yaoki.jobs AS job SET started_at = marked.started_at
FROM marked
WHERE job.id = marked.id AND job.id = ANY(ARRAY(SELECT id FROM marked));
