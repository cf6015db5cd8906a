"""What the machine could do at best: the same work with nothing around it."""
