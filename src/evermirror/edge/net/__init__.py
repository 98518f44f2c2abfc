"""Which addresses may be reached, and name resolution that is pinned to the answer checked."""
