"""The official MCP conformance suite against a server process with the tools that it asks for."""
