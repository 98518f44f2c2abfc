"""The dashboard in a real browser. A package, so that pytest ends what they share with the last of them."""
