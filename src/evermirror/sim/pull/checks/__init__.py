"""What must hold on every simulated day of pull mirroring, one promise in each file."""
