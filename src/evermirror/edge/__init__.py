"""How it is done: one folder per outside thing."""
