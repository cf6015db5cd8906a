DELETE FROM yaoki.workers
WHERE worker_id = ANY(ARRAY(
    SELECT worker_id FROM yaoki.workers WHERE seen_at < :now - :silent_for
    FOR UPDATE SKIP LOCKED
));
