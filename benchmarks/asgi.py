"""How the floor and the peers are served: alike, or their figures could not be compared."""

from __future__ import annotations

from typing import Any, Literal

import uvicorn


def serve(app: Any, port: int, *, lifespan: Literal["auto", "off"] = "auto") -> None:
    """Serve an ASGI application until terminated: uvloop, httptools, no access log."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=75,  # as ours: connections rest while the others have their turns
        timeout_graceful_shutdown=1,
    )
