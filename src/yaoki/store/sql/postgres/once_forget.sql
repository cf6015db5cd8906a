-- By the places of the rows, which are locked: no join, and so none over the whole table.
DELETE FROM yaoki.once
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM yaoki.once
    WHERE done_at < :now - :keep
    ORDER BY done_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
));
