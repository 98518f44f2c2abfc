"""Which repos exist: parse and compare."""
