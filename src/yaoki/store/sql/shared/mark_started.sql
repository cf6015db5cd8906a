UPDATE yaoki.jobs SET started_at = :now - :ran_for
WHERE id = :id AND lease = :lease AND started_at IS NULL;
