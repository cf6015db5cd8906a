-- Ids are given in the order of the rows, and keys are taken in their own order: two who enqueue
-- the same keys at the same instant wait for each other in one direction only.
WITH given AS MATERIALIZED (
    SELECT
        nextval('yaoki.jobs_id_seq') AS id, type, queue, priority, payload, run_at, delay,
        max_attempts, timeout, said, idempotency_key, tags, trace
    FROM json_to_recordset(:many::json) AS one (
        type text, queue text, priority integer, payload text, run_at bigint, delay bigint,
        max_attempts bigint, timeout bigint, said integer, idempotency_key text, tags text,
        trace text
    )
)
INSERT INTO yaoki.jobs (
    id, type, queue, priority, payload, run_at, max_attempts, timeout, said,
    idempotency_key, tags, trace, created_at, updated_at
)
SELECT
    id, type, queue, priority, payload, coalesce(run_at, clock.now + delay), max_attempts, timeout,
    said, idempotency_key, tags, trace, clock.now, clock.now
FROM given
CROSS JOIN (SELECT :now AS now) AS clock
ORDER BY idempotency_key COLLATE "C" NULLS FIRST, id
ON CONFLICT DO NOTHING
RETURNING id, created_at AS now;
