-- Nobody is waited for: one locked row must not keep a worker from renewing its other leases.
-- No indexed column changes, so the new version of the row needs no new index entries (HOT).
UPDATE yaoki.jobs SET lease_expires_at = :now + lease_for
WHERE id = ANY(ARRAY(
    SELECT mine.id
    FROM json_to_recordset(:many::json) AS one (id bigint, lease bigint)
    CROSS JOIN LATERAL (
        SELECT held.id FROM yaoki.jobs AS held
        WHERE held.id = one.id AND held.lease = one.lease
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS mine
));
