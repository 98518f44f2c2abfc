"""What forges' hooks do here: taken in, looked at, learned from, registered."""
