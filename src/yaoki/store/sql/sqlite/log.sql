INSERT INTO yaoki.logs (job_id, lease, line, at, level, text)
SELECT id, lease, :number, :now - :ago, :level, :text FROM yaoki.jobs
WHERE id = :id AND lease = :lease
ON CONFLICT DO NOTHING;
