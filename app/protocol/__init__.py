"""What MCP says, without I/O: no sockets, clock, randomness, logging or framework."""
