"""The coordinator: what workers and aggregators tell it, and what it tells them."""
