"""What upkeep a mirror needs, and whose turn it is."""
