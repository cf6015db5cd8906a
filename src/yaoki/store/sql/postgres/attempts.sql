-- The last :most attempts of each job: one that snoozes for ever has more than anybody reads.
SELECT
    kept.job_id, kept.attempt, kept.outcome, kept.worker_id, kept.claimed_at, kept.started_at,
    kept.ended_at, kept.error, kept.traceback, kept.lease
FROM unnest(:ids) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT * FROM yaoki.attempts AS one
    WHERE one.job_id = wanted.id
    ORDER BY one.job_id DESC, one.lease DESC
    LIMIT :most
) AS kept
ORDER BY kept.job_id, kept.lease;
