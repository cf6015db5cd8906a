"""The story of `yaoki demo`: a shop's background jobs, and everything that can happen to them."""
