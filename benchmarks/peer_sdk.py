"""The official Python SDK's MCPServer with the same tools: JSON answers, stateless, no log.

python -m benchmarks.peer_sdk PORT COUNT
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

from benchmarks import toolset
from benchmarks.asgi import serve


def main(port: int, count: int) -> None:
    """Serve until terminated."""
    server: MCPServer[None] = MCPServer("benchmark", log_level="ERROR")
    for function in toolset.functions(count):
        server.tool()(function)
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    serve(app, port)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
