-- Within one transaction AUTOINCREMENT gives ids without gaps, in the order of the rows.
INSERT INTO yaoki.jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said,
    idempotency_key, tags, trace, created_at, updated_at
)
VALUES (
    :type, :queue, :priority, :payload, coalesce(:run_at, :now + :delay), :max_attempts, :timeout,
    :said, :idempotency_key, :tags, :trace, :now, :now
);
-- once
SELECT id FROM yaoki.jobs WHERE id > last_insert_rowid() - :count ORDER BY id;
