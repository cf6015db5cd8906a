SELECT id, lease FROM yaoki.jobs WHERE lease % 2 = 1 AND worker_id = :worker_id ORDER BY id;
