"""What others are told of what happened."""
