"""How things are shown to people and to programs."""
