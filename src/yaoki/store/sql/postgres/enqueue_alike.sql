-- Jobs that differ by their payloads only.
INSERT INTO yaoki.jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said, tags, trace, created_at,
    updated_at
)
SELECT
    :type, :queue, :priority, one.payload, coalesce(:run_at, clock.now + :delay), :max_attempts,
    :timeout, :said, :tags, :trace, clock.now, clock.now
FROM (SELECT :now AS now) AS clock
CROSS JOIN unnest(:payloads) AS one (payload)
RETURNING id, created_at AS now;
