-- The first due jobs of a lane; those that must run alone are passed over, if that is asked.
SELECT run_at, id FROM yaoki.jobs
WHERE status = 'pending' AND type = :type AND queue = :queue AND priority = :priority
    AND run_at <= :now
    AND (
        :rescues_below IS NULL OR rescues = 0
        OR (rescues < :rescues_below AND attempt + 1 < max_attempts)
    )
ORDER BY run_at, id
LIMIT :limit;
