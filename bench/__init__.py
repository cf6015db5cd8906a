"""Measurements: what yaoki does, each beside what the machine could do at best, in one run."""
