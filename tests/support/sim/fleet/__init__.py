"""The fleet in rough weather: faults drawn from one seed, and every promise checked all along."""
