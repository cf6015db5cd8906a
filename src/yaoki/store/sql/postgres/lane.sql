-- The first due jobs of a lane. None is locked yet, so there are some more than are wanted, for
-- those that others have locked.
SELECT run_at, id FROM yaoki.jobs
WHERE lease % 2 = 0 AND finished_at IS NULL
    AND type = :type AND queue = :queue AND priority = :priority AND run_at <= :now
    AND (
        :rescues_below IS NULL OR rescues = 0
        OR (rescues < :rescues_below AND attempt + 1 < max_attempts)
    )
ORDER BY type, queue, priority, run_at, id
LIMIT :limit + 200;
