-- Any outcome but completion: first the attempt's record, then what becomes of the job.
INSERT INTO yaoki.attempts (
    job_id, lease, attempt, outcome, worker_id, claimed_at, started_at, ended_at, error, traceback
)
SELECT
    id, lease, attempt,
    CASE
        WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN :outcome = 'retried' AND attempt >= max_attempts THEN 'failed'
        WHEN :outcome = 'released' AND releases >= :releases_free AND attempt >= max_attempts
            THEN 'failed'
        ELSE :outcome
    END,
    worker_id, claimed_at,
    CASE WHEN :started THEN coalesce(started_at, :now - :ran_for) END,
    :now, :error, :traceback
FROM yaoki.jobs
WHERE id = :id AND lease = :lease AND (:started OR :rescued OR :outcome <> 'released');

UPDATE yaoki.jobs SET
    status = CASE
        WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN :outcome IN ('failed', 'cancelled') THEN :outcome
        WHEN :outcome = 'snoozed' THEN 'pending'
        WHEN :outcome = 'released' AND releases < :releases_free THEN 'pending'
        WHEN attempt < max_attempts THEN 'pending'
        ELSE 'failed'
    END,
    attempt = CASE
        WHEN :outcome = 'snoozed' THEN attempt - 1
        WHEN :outcome = 'released' AND releases < :releases_free THEN attempt - 1
        ELSE attempt
    END,
    run_at = CASE
        WHEN :outcome IN ('retried', 'snoozed') THEN :now + :wait
        ELSE run_at
    END,
    error = CASE
        WHEN :outcome IN ('retried', 'failed') THEN :error
        WHEN :outcome = 'released' AND releases >= :releases_free THEN :error
        ELSE error
    END,
    releases = CASE
        WHEN :outcome <> 'released' THEN 0
        WHEN :started OR :rescued THEN releases + 1
        ELSE releases
    END,
    snoozes = CASE WHEN :outcome = 'snoozed' THEN snoozes + 1 ELSE snoozes END,
    rescues = rescues + :rescued,
    progress = coalesce(:progress, progress),
    lease = lease + 1,
    lease_expires_at = NULL,
    finished_at = :now,
    updated_at = :now,
    revision = revision + 1
WHERE id = :id AND lease = :lease;

-- A job that is pending again has nobody's name on it.
UPDATE yaoki.jobs SET
    worker_id = NULL, claimed_at = NULL, started_at = NULL, finished_at = NULL
WHERE id = :id AND lease = :lease + 1 AND status = 'pending';
