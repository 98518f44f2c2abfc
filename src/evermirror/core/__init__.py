"""What should happen: pure decisions. Events and now in, decisions out; no clock, no random, no I/O."""
