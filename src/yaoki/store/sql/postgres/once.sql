-- 1 for the first that records this key, 0 for everybody after it.
WITH made AS (
    INSERT INTO yaoki.once (scope, key, done_at) VALUES (:scope, :key, :now)
    ON CONFLICT DO NOTHING
    RETURNING key
)
SELECT count(*) FROM made;
