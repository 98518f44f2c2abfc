"""The public face of a fleet at its aggregator: users' requests are passed on to the coordinator."""
