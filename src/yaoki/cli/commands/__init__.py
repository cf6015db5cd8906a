"""The commands, a file for each family of them."""
