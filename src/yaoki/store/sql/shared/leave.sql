DELETE FROM yaoki.workers WHERE worker_id = :worker_id;
