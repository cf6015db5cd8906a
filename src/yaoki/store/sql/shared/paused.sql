SELECT kind, name, paused_at FROM yaoki.paused ORDER BY kind, name;
