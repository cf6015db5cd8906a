-- Changes nothing, and waits for whatever a renewal would have to wait for.
UPDATE yaoki.jobs SET lease = lease WHERE id = 0;
