DELETE FROM yaoki.once
WHERE (scope, key) IN (
    SELECT scope, key FROM yaoki.once
    WHERE done_at < :now - :keep
    ORDER BY done_at
    LIMIT 10
);
