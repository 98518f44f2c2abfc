"""The only place that speaks git, and the only place that starts it."""
