"""Orders about many repos at once: written down, carried out chunk by chunk, gone on with after a stop."""
