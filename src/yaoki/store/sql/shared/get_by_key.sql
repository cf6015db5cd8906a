SELECT * FROM yaoki.jobs WHERE idempotency_key = :key;
