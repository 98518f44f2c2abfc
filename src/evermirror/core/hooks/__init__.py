"""Hooks of forges: what they tell, whether they are genuine, how far they can be relied on."""
