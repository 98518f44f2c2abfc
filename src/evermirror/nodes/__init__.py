"""Who runs it: wiring and life cycle of each role."""
