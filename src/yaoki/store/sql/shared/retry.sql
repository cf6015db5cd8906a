-- Put back: from the start when it had ended; at once when it was waiting, if that is meant too.
UPDATE yaoki.jobs SET
    status = 'pending',
    attempt = CASE WHEN status = 'pending' THEN attempt ELSE 0 END,
    run_at = :now,
    worker_id = NULL,
    claimed_at = NULL,
    started_at = NULL,
    finished_at = NULL,
    cancel_requested_at = NULL,
    progress = NULL,
    releases = 0,
    rescues = 0,
    revision = revision + 1,
    updated_at = :now
WHERE id = :id AND (status IN ('failed', 'cancelled') OR (:waiting = 1 AND status = 'pending'));
