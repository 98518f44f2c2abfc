"""What the aggregator fetches, from whom, and what it believes."""
