-- A worker says that it lives, and how its parts are.
INSERT INTO yaoki.workers (
    worker_id, host, pid, version, queues, types, concurrency, state, lease_for, started_at,
    seen_at, health
)
VALUES (
    :worker_id, :host, :pid, :version, :queues_json, :types_json, :concurrency, :state, :lease_for,
    :now, :now, :health
)
ON CONFLICT (worker_id) DO UPDATE
SET state = excluded.state, seen_at = excluded.seen_at, health = excluded.health;
