-- Jobs that differ by their payloads only. Within one transaction AUTOINCREMENT gives ids without
-- gaps, in the order of the array.
INSERT INTO yaoki.jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said, tags, trace, created_at,
    updated_at
)
SELECT
    :type, :queue, :priority, value, coalesce(:run_at, :now + :delay), :max_attempts, :timeout,
    :said, :tags, :trace, :now, :now
FROM json_each(:payloads);
-- once
SELECT id FROM yaoki.jobs WHERE id > last_insert_rowid() - :count ORDER BY id;
