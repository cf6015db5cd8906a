SELECT
    worker_id, host, pid, version, queues, types, concurrency, state, lease_for, started_at,
    seen_at, health,
    :now
FROM yaoki.workers
ORDER BY started_at, worker_id;
