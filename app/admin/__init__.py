"""The administrative listener: a port of its own, for those who run the server."""
