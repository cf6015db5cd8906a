-- Jobs that wait for their first run in the future do not count as remaining.
WITH mine AS NOT MATERIALIZED (
    SELECT run_at, attempt, snoozes FROM yaoki.jobs
    WHERE lease % 2 = 0 AND finished_at IS NULL
        AND type = ANY(:types)
        AND (:queues IS NULL OR queue = ANY(:queues))
        AND queue <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'queue'))
        AND type <> ALL(ARRAY(SELECT name FROM yaoki.paused WHERE kind = 'type'))
)
SELECT
    (
        SELECT count(*) FROM yaoki.jobs
        WHERE lease % 2 = 1
            AND type = ANY(:types)
            AND (:queues IS NULL OR queue = ANY(:queues))
    ),
    EXISTS (SELECT 1 FROM mine WHERE run_at <= :now),
    (SELECT min(run_at) FROM mine WHERE run_at > :now AND (attempt > 0 OR snoozes > 0)),
    :now;
