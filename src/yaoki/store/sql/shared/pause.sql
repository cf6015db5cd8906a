INSERT INTO yaoki.paused (kind, name, paused_at) VALUES (:kind, :name, :now)
ON CONFLICT (kind, name) DO NOTHING;
