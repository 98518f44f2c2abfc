"""The way to nodes that nobody can reach: lines that they open themselves, and git asked over those."""
