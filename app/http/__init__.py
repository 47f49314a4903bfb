"""The HTTP door: Streamable HTTP of MCP 2026-07-28 as pure ASGI."""
