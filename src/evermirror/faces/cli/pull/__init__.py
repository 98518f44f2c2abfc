"""`pull`: projects that are looked at in a fixed rhythm and pushed on to targets, at the command line."""
