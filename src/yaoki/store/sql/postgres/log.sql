-- Only those of attempts that still have their job, and each line once.
INSERT INTO yaoki.logs (job_id, lease, line, at, level, text)
SELECT job.id, job.lease, one.number, clock.now - one.ago, one.level, one.text
FROM json_to_recordset(:many::json) AS one (
    id bigint, lease bigint, number bigint, ago bigint, level text, text text
)
CROSS JOIN (SELECT :now AS now) AS clock
INNER JOIN yaoki.jobs AS job ON job.id = one.id AND job.lease = one.lease
WHERE job.id
    = ANY(ARRAY(SELECT (each ->> 'id')::bigint FROM json_array_elements(:many::json) AS each))
ORDER BY job.id, one.number
ON CONFLICT DO NOTHING;
