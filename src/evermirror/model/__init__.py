"""What things are: frozen values that every other part speaks in."""
