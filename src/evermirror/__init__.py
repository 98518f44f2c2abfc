"""evermirror keeps git mirrors fresh."""

__version__ = "0.1.0"
