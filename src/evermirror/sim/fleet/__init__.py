"""What-if studies of a fleet: the real machine among simulated workers, links and bytes."""
