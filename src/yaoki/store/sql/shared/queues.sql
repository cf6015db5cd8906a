-- What is open, by three indexes: the history, which may be long, is never read.
SELECT
    queue,
    sum(CASE WHEN status = 'pending' AND run_at <= :now THEN 1 ELSE 0 END),
    sum(CASE WHEN status = 'pending' AND run_at > :now THEN 1 ELSE 0 END),
    sum(CASE WHEN status = 'running' THEN 1 ELSE 0 END),
    sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END),
    min(CASE WHEN status = 'pending' AND run_at <= :now THEN run_at END),
    :now
FROM (
    SELECT queue, status, run_at FROM yaoki.jobs WHERE status = 'pending'
    UNION ALL
    SELECT queue, status, run_at FROM yaoki.jobs WHERE lease % 2 = 1
    UNION ALL
    SELECT queue, status, run_at FROM yaoki.jobs WHERE status = 'failed'
) AS open_jobs
GROUP BY queue
ORDER BY queue;
