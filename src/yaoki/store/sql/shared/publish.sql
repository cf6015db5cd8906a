INSERT INTO yaoki.definitions (type, definition, published_by, published_at)
VALUES (:type, :definition, :published_by, :now)
ON CONFLICT (type) DO UPDATE SET
    definition = excluded.definition,
    published_by = excluded.published_by,
    published_at = excluded.published_at
WHERE yaoki.definitions.definition <> excluded.definition;
