DELETE FROM yaoki.workers WHERE seen_at < :now - :silent_for;
