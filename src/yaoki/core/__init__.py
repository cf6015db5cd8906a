"""The rules: pure, without I/O, without a clock."""
