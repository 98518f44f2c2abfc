"""When to look: policies, queues, limits, retries."""
