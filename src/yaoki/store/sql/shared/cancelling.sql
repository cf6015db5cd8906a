SELECT id, lease FROM yaoki.jobs WHERE lease % 2 = 1 AND cancel_requested_at IS NOT NULL;
