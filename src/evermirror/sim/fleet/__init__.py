"""A fleet, faked: the real machine among simulated workers, network, store and faults; one seed, one run."""
