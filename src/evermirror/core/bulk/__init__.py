"""One action on many repos: what may be ordered, what it means for each, how an order goes on."""
