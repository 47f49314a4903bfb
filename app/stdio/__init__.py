"""The stdio door: MCP messages as lines on standard input and output, for one client."""
