-- A pending job ends at once; a running one is asked to, and every way out of it obeys.
UPDATE yaoki.jobs SET
    status = CASE WHEN status = 'pending' THEN 'cancelled' ELSE status END,
    finished_at = CASE WHEN status = 'pending' THEN :now ELSE finished_at END,
    cancel_requested_at = coalesce(cancel_requested_at, :now),
    revision = revision + 1,
    updated_at = :now
WHERE id = :id AND status IN ('pending', 'running') AND cancel_requested_at IS NULL;
