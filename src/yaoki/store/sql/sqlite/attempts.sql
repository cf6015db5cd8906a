-- The last :most attempts of each job: one that snoozes for ever has more than anybody reads.
SELECT
    kept.job_id, kept.attempt, kept.outcome, kept.worker_id, kept.claimed_at, kept.started_at,
    kept.ended_at, kept.error, kept.traceback, kept.lease
FROM json_each(:ids)
INNER JOIN yaoki.attempts AS kept ON kept.job_id = json_each.value
    AND kept.lease >= coalesce(
        (
            SELECT old.lease FROM yaoki.attempts AS old
            WHERE old.job_id = json_each.value
            ORDER BY old.lease DESC
            LIMIT 1 OFFSET :most - 1
        ),
        0
    )
ORDER BY kept.job_id, kept.lease;
