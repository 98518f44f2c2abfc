"""Pull mirroring: projects, their turns, what they and their sources tell."""
