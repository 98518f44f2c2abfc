"""Days of pull mirroring in rough weather, and every promise checked all along."""
