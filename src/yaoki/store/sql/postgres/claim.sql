-- The claim writes everything that a rescue needs: attempt, token, end of the lease, policy.
-- A token is above every one before it, also when the database is an older copy put back.
UPDATE yaoki.jobs SET
    status = 'running',
    lease = greatest(lease + 1, :token),
    attempt = attempt + 1,
    max_attempts = :max_attempts,
    timeout = :timeout,
    backoff = :backoff,
    worker_id = :worker_id,
    claimed_at = :claimed_at,
    started_at = :started_at,
    lease_for = :lease_for,
    lease_expires_at = :claimed_at + :lease_for,
    revision = revision + 1,
    updated_at = :claimed_at
WHERE id = ANY(:ids);
