"""Days of pull mirroring in a faked world, in virtual time: a source that suffers, targets that fail."""
