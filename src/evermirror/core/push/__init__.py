"""What may be put where: refs of a mirror against refs of a target."""
