-- An attempt that completed, or goes on, has no record of its own: its number is the job's.
SELECT
    coalesce(
        (
            SELECT ended.attempt FROM yaoki.attempts AS ended
            WHERE ended.job_id = one.job_id AND ended.lease = one.lease
        ),
        job.attempt
    ) AS attempt,
    one.line, one.at, one.level, one.text, one.lease
FROM yaoki.logs AS one
INNER JOIN yaoki.jobs AS job ON job.id = one.job_id
WHERE one.job_id = :id
ORDER BY one.job_id, one.lease, one.line;
