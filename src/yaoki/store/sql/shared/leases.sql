-- Those of a page that may be without a holder: over by the clock, or renewed, as it seems, at a time
-- that is still to come, because the clock was set back since. The rescuer judges by what it saw
-- before.
SELECT id, lease, lease_expires_at, lease_for, lease_expires_at <= :now
FROM yaoki.jobs
WHERE lease % 2 = 1 AND id > :after AND id <= :upto
    AND (lease_expires_at <= :now OR lease_expires_at > :now + lease_for)
ORDER BY id;
