"""Jobs in a PostgreSQL database."""
