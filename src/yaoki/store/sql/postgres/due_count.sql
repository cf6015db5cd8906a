-- How many due jobs this priority has behind a place in the line; counting ends at :most.
SELECT count(*) FROM (
    SELECT 1 FROM yaoki.jobs
    WHERE status = 'pending' AND priority = :priority AND run_at <= :now
        AND (run_at, id) > (:after_run_at, :after_id)
    ORDER BY priority, run_at, id
    LIMIT :most
) AS due;
