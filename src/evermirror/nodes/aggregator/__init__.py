"""The aggregator: follows the coordinator, fetches from workers, checks, and serves."""
