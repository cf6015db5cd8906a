UPDATE yaoki.workers SET seen_at = :now WHERE worker_id = :worker_id;
