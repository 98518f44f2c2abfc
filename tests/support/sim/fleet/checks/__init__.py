"""The fleet's promises, each checked against what was written and what is really there."""
