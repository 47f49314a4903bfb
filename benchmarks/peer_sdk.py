"""The official Python SDK's MCPServer with the same tools: JSON answers, stateless, no log.

python -m benchmarks.peer_sdk PORT COUNT
"""

from __future__ import annotations

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

from benchmarks import toolset


def main(port: int, count: int) -> None:
    """Serve until terminated."""
    server: MCPServer[None] = MCPServer("benchmark", log_level="ERROR")
    for function in toolset.functions(count):
        server.tool()(function)
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
