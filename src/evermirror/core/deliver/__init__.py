"""How events reach others' servers: in order, again until they are taken, laid aside where they are not."""
