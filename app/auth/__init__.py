"""Who calls: credentials, and how they are checked."""
