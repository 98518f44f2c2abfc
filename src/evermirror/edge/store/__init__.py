"""What is remembered: the coordinator's database and a worker's local file."""
