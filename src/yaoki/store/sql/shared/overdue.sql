-- Jobs whose lease has been over for so long that somebody should have taken them back.
SELECT count(*), min(id) FROM (
    SELECT id FROM yaoki.jobs
    WHERE lease % 2 = 1 AND lease_expires_at + lease_for < :now
    ORDER BY id
    LIMIT :limit
) AS overdue;
