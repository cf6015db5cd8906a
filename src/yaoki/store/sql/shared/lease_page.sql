-- So many leases behind an id: how many there are, the last, and the shortest length.
SELECT count(*), max(id), min(lease_for) FROM (
    SELECT id, lease_for FROM yaoki.jobs
    WHERE lease % 2 = 1 AND id > :after
    ORDER BY id
    LIMIT :most
) AS page;
