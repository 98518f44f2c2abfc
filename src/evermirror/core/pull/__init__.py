"""When projects are pulled: a strategy for all of them, rules for each."""
