"""What people would use instead, run for real."""
