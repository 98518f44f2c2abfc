"""Simulated worlds around the real machines, and the checkers of what the machines promise."""
