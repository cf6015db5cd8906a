-- A known idempotency key changes nothing.
INSERT INTO yaoki.jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said,
    idempotency_key, tags, trace, created_at, updated_at
)
VALUES (
    :type, :queue, :priority, :payload, coalesce(:run_at, :now + :delay), :max_attempts, :timeout,
    :said, :idempotency_key, :tags, :trace, :now, :now
)
ON CONFLICT DO NOTHING;
