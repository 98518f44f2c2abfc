"""One benchmark a module: what it measures, against what, and how, as BENCH."""
