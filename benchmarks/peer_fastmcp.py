"""FastMCP with the same tools: JSON answers, stateless, no log.

python -m benchmarks.peer_fastmcp PORT COUNT
"""

from __future__ import annotations

import logging
import sys

from fastmcp import FastMCP

from benchmarks import toolset
from benchmarks.asgi import serve


def main(port: int, count: int) -> None:
    """Serve until terminated."""
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    server = FastMCP("benchmark")
    for function in toolset.functions(count):
        server.tool(function)
    app = server.http_app(json_response=True, stateless_http=True)
    serve(app, port)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
