"""What-if studies of pull mirroring: days in virtual time, with a source that suffers."""
