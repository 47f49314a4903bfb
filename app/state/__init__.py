"""State that outlives a request: one small interface, and where it can be kept."""
