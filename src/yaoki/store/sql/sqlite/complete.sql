-- :rows is an array of [id, lease, ran_for, result, progress]. The token alone is the fence: it
-- changes whenever the job enters or leaves `running`.
UPDATE yaoki.jobs SET
    status = CASE WHEN cancel_requested_at IS NULL THEN 'completed' ELSE 'cancelled' END,
    lease = done.lease + 1,
    lease_expires_at = NULL,
    started_at = coalesce(started_at, :now - done.ran_for),
    error = NULL,
    result = done.result,
    progress = coalesce(done.progress, yaoki.jobs.progress),
    finished_at = :now,
    updated_at = :now,
    revision = revision + 1
FROM (
    SELECT
        json_extract(value, '$[0]') AS id,
        json_extract(value, '$[1]') AS lease,
        json_extract(value, '$[2]') AS ran_for,
        json_extract(value, '$[3]') AS result,
        json_extract(value, '$[4]') AS progress
    FROM json_each(:rows)
) AS done
WHERE yaoki.jobs.id = done.id AND yaoki.jobs.lease = done.lease;
