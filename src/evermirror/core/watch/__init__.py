"""What to tell people: overviews and statistics."""
