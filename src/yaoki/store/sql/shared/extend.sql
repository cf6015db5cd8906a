UPDATE yaoki.jobs SET
    lease_for = coalesce(:lease_for, lease_for),
    lease_expires_at = :now + coalesce(:lease_for, lease_for)
WHERE id = :id AND lease = :lease;
