SELECT * FROM yaoki.jobs WHERE id = :id;
