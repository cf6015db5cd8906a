UPDATE yaoki.jobs SET lease_expires_at = :now + lease_for WHERE id = :id AND lease = :lease;
