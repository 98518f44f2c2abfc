"""What to tell people: progress, error statistics, alerts."""
