SELECT type, definition, published_by, published_at FROM yaoki.definitions ORDER BY type;
