"""Side-by-side measurements: the product and its alternative in one run, on one machine, as ratios."""
