-- The arrays are one claim each. The token alone is the fence: it changes whenever the job enters or
-- leaves `running`. That the ids are named twice keeps every plan on the primary key.
UPDATE yaoki.jobs AS job SET
    status = CASE WHEN job.cancel_requested_at IS NULL THEN 'completed' ELSE 'cancelled' END,
    lease = done.lease + 1,
    lease_expires_at = NULL,
    started_at = coalesce(job.started_at, clock.now - done.ran_for),
    error = NULL,
    result = done.result,
    progress = coalesce(done.progress, job.progress),
    finished_at = clock.now,
    updated_at = clock.now,
    revision = job.revision + 1
FROM unnest(:ids, :leases, :times, :results, :notes)
    AS done (id, lease, ran_for, result, progress)
CROSS JOIN (SELECT :now AS now) AS clock
WHERE job.id = done.id AND job.lease = done.lease AND job.id = ANY(:ids);
