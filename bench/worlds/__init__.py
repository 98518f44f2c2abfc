"""What is measured on: servers, populations, processes, crowds."""
