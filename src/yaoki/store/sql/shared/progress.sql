UPDATE yaoki.jobs SET progress = :progress, revision = revision + 1, updated_at = :now
WHERE id = :id AND lease = :lease;
