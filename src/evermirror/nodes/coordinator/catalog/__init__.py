"""Sources of the catalog: watched, read, written to."""
