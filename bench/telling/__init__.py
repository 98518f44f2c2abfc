"""How results are told: a table, a JSON file, a page with charts, and what changed since another run."""
