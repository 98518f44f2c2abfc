"""Discovery, decided: what of a group is chosen, what it is called, what a run does, when the next one is."""
