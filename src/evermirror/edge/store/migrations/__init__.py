"""How the coordinator's database comes to have the tables of this version: one file a step, in versions/."""
