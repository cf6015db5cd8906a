"""Workers that are killed, stopped and cut off while they work, and what became of the jobs."""
