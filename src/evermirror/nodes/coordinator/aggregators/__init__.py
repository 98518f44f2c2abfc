"""Aggregators: what they are told, what they say, what lets them read."""
