-- Any outcome but completion: first the attempts' records, then what becomes of the jobs, whose
-- rows are locked already.
INSERT INTO yaoki.attempts (
    job_id, lease, attempt, outcome, worker_id, claimed_at, started_at, ended_at, error, traceback
)
SELECT
    job.id, job.lease, job.attempt,
    CASE
        WHEN job.cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN one.outcome = 'retried' AND job.attempt >= job.max_attempts THEN 'failed'
        WHEN one.outcome = 'released' AND job.releases >= one.releases_free
            AND job.attempt >= job.max_attempts THEN 'failed'
        ELSE one.outcome
    END,
    job.worker_id, job.claimed_at,
    CASE WHEN one.started THEN coalesce(job.started_at, clock.now - one.ran_for) END,
    clock.now, one.error, one.traceback
FROM json_to_recordset(:many::json) AS one (
    id bigint, lease bigint, outcome text, error text, traceback text, started boolean,
    ran_for bigint, rescued boolean, releases_free bigint
)
CROSS JOIN (SELECT :now AS now) AS clock
INNER JOIN yaoki.jobs AS job ON job.id = one.id AND job.lease = one.lease
WHERE (one.started OR one.rescued OR one.outcome <> 'released')
    AND job.id = ANY(ARRAY(SELECT (each ->> 'id')::bigint FROM json_array_elements(:many::json) AS each));

-- A job that is pending again has nobody's name on it.
WITH one AS MATERIALIZED (
    SELECT
        job.id, job.lease, one.outcome, one.wait, one.error, one.started, one.progress, one.rescued,
        one.releases_free,
        CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN one.outcome IN ('failed', 'cancelled') THEN one.outcome
            WHEN one.outcome = 'snoozed' THEN 'pending'
            WHEN one.outcome = 'released' AND job.releases < one.releases_free THEN 'pending'
            WHEN job.attempt < job.max_attempts THEN 'pending'
            ELSE 'failed'
        END AS status,
        clock.now
    FROM json_to_recordset(:many::json) AS one (
        id bigint, lease bigint, outcome text, wait bigint, error text, started boolean,
        progress text, rescued boolean, releases_free bigint
    )
    CROSS JOIN (SELECT :now AS now) AS clock
    INNER JOIN yaoki.jobs AS job ON job.id = one.id AND job.lease = one.lease
    WHERE job.id
        = ANY(ARRAY(SELECT (each ->> 'id')::bigint FROM json_array_elements(:many::json) AS each))
)
UPDATE yaoki.jobs AS job SET
    status = one.status,
    attempt = CASE
        WHEN one.outcome = 'snoozed' THEN job.attempt - 1
        WHEN one.outcome = 'released' AND job.releases < one.releases_free THEN job.attempt - 1
        ELSE job.attempt
    END,
    run_at = CASE
        WHEN one.outcome IN ('retried', 'snoozed') THEN one.now + one.wait
        ELSE job.run_at
    END,
    error = CASE
        WHEN one.outcome IN ('retried', 'failed') THEN one.error
        WHEN one.outcome = 'released' AND job.releases >= one.releases_free THEN one.error
        ELSE job.error
    END,
    releases = CASE
        WHEN one.outcome <> 'released' THEN 0
        WHEN one.started OR one.rescued THEN job.releases + 1
        ELSE job.releases
    END,
    snoozes = CASE WHEN one.outcome = 'snoozed' THEN job.snoozes + 1 ELSE job.snoozes END,
    rescues = job.rescues + CASE WHEN one.rescued THEN 1 ELSE 0 END,
    progress = coalesce(one.progress, job.progress),
    lease = job.lease + 1,
    lease_expires_at = NULL,
    worker_id = CASE WHEN one.status = 'pending' THEN NULL ELSE job.worker_id END,
    claimed_at = CASE WHEN one.status = 'pending' THEN NULL ELSE job.claimed_at END,
    started_at = CASE WHEN one.status = 'pending' THEN NULL ELSE job.started_at END,
    finished_at = CASE WHEN one.status = 'pending' THEN NULL ELSE one.now END,
    updated_at = one.now,
    revision = job.revision + 1
FROM one
WHERE job.id = one.id AND job.lease = one.lease AND job.id = ANY(ARRAY(SELECT id FROM one));
