-- How many due jobs this priority has; counting ends at :most.
SELECT count(*) FROM (
    SELECT 1 FROM yaoki.jobs
    WHERE status = 'pending' AND priority = :priority AND run_at <= :now
    ORDER BY run_at, id
    LIMIT :most
);
