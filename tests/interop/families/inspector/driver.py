"""Drives the command line of MCP Inspector: one process, one connection and one request each time.

It runs with the Python of the tests; what it drives is in a folder of Node.js packages, which the
first argument names.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from tests.interop.families.scenarios import Answer, Job, NoMeans, main
from tests.support import nodejs

PROGRAM: Final = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
ONE_REQUEST: Final = "It sends one request in each run, and nothing beside it."


class Refused(Exception):
    """The program wrote an error."""


class Inspector:
    """What the command line does, as the calls of a client."""

    def __init__(self, job: Job, packages: Path) -> None:
        self.revision = ""
        self.asked: list[str] = []
        self._job = job
        self._program = packages / PROGRAM

    async def run(self, *arguments: str) -> Any:
        """One run; what it prints."""
        process = await asyncio.create_subprocess_exec(
            *(str(nodejs.NODE), str(self._program), "--cli", *self._server()),
            *("--protocol-era", self._job.era, "--format", "json", *arguments),
            env=dict(nodejs.environment()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if not output:
            last = errors.decode().strip().splitlines()[-1:]
            raise Refused(" ".join(last) or f"exit code {process.returncode}")
        return json.loads(output)["result"]

    def _server(self) -> Sequence[str]:
        if self._job.transport == "http":
            return ("--server-url", self._job.url, "--transport", "http")
        command, *arguments = self._job.command
        server = {
            "command": command,
            "args": arguments,
            "cwd": self._job.cwd,
            "env": dict(self._job.env),
        }
        # As an argument of the program, the server's own `--config` would be taken for its own.
        file = Path(self._job.log).with_name("mcp.json")
        file.write_text(json.dumps({"mcpServers": {"ours": server}}), "utf-8")
        return ("--config", str(file), "--server", "ours")

    async def list_tools(self) -> list[dict[str, Any]]:
        # It turns the pages itself.
        found: list[dict[str, Any]] = (await self.run("--method", "tools/list"))["tools"]
        return found

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Callable[[float], None] | None = None,
    ) -> Answer:
        if heard is not None:
            raise NoMeans("It prints no progress.")
        if name == "greet":
            raise NoMeans("It cannot ask its user, and declares no elicitation.")
        sent = json.dumps(arguments or {})
        result = await self.run(
            *("--method", "tools/call", "--tool-name", name, "--tool-args-json", sent)
        )
        text = "".join(block["text"] for block in result["content"] if block["type"] == "text")
        return Answer(text, result.get("structuredContent"), result.get("isError", False))

    def changes(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        raise NoMeans(ONE_REQUEST)

    async def give_up(self, *_: object) -> None:
        raise NoMeans(ONE_REQUEST)


@contextlib.asynccontextmanager
async def connected(job: Job) -> AsyncIterator[Inspector]:
    client = Inspector(job, Path(sys.argv[1]))
    client.revision = (await client.run("--method", "initialize"))["protocolVersion"]
    yield client


if __name__ == "__main__":
    main(connected)
