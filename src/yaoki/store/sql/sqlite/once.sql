INSERT INTO yaoki.once (scope, key, done_at) VALUES (:scope, :key, :now) ON CONFLICT DO NOTHING;
SELECT changes();
