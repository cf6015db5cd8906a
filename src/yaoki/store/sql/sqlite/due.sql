-- The first due jobs of one priority that may be taken, among the first :window due ones.
-- The inner query runs as a co-routine, in its order, and is left at the :limit-th row; an outer
-- ORDER BY would read and sort the whole window (test_statements.py looks at the plan).
SELECT * FROM (
    SELECT * FROM yaoki.jobs
    WHERE status = 'pending' AND priority = :priority AND run_at <= :now
    ORDER BY run_at, id
    LIMIT :window
)
WHERE (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND queue NOT IN (SELECT value FROM json_each(:but_not))
    AND (
        :rescues_below IS NULL OR rescues = 0
        OR (rescues < :rescues_below AND attempt + 1 < max_attempts)
    )
    AND queue NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'queue')
    AND type NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'type')
LIMIT :limit;
