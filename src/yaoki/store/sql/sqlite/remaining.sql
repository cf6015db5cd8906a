-- Jobs that wait for their first run in the future do not count as remaining.
WITH
mine AS (
    SELECT run_at, attempt, snoozes FROM yaoki.jobs
    WHERE status = 'pending'
        AND type IN (SELECT value FROM json_each(:types))
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
        AND queue NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'queue')
        AND type NOT IN (SELECT name FROM yaoki.paused WHERE kind = 'type')
)
SELECT
    (
        SELECT count(*) FROM yaoki.jobs
        WHERE lease % 2 = 1
            AND type IN (SELECT value FROM json_each(:types))
            AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    ),
    EXISTS (SELECT 1 FROM mine WHERE run_at <= :now),
    (SELECT min(run_at) FROM mine WHERE run_at > :now AND (attempt > 0 OR snoozes > 0)),
    :now;
