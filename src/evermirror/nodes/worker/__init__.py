"""The worker: its rounds over upstreams, its line to the coordinator, and those over which it is read."""
