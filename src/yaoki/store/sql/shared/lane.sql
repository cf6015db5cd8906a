SELECT run_at, id FROM yaoki.jobs
WHERE status = 'pending' AND type = :type AND queue = :queue AND priority = :priority
    AND run_at <= :now
    AND (:rescues_below IS NULL OR rescues < :rescues_below)
ORDER BY run_at, id
LIMIT :limit;
