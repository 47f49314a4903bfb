"""``call``: run one tool here, through the path that a request takes."""

import asyncio
import json
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.progress import Progress, TaskID

from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    JsonOption,
    ToolsOption,
    errors,
    fail,
    load_or_exit,
    out,
    print_error,
    tool_flags,
)
from app.execution.execution import Execution
from app.methods.answers import Answer, Reply, Sender
from app.observability.logs import configure_logging
from app.protocol.errors import MissingRequiredClientCapability, ParseError, ProtocolError
from app.protocol.inbound import Call
from app.protocol.jsonrpc import loads
from app.protocol.schema import LATEST_PROTOCOL_VERSION, Implementation, RequestMeta
from app.service import Service
from app.settings import Settings


def call(
    name: Annotated[str, typer.Argument(help="Name of the tool, as served")],
    args: Annotated[str, typer.Option("--args", "-a", help="Arguments as a JSON object")] = "{}",
    config: ConfigOption = None,
    tools: ToolsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call one tool in this process and show its progress and its result."""
    try:
        arguments = loads(args.encode())
    except (ParseError, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("The body is ")
        fail(f"--args is {reason}", Exit.USAGE)
    if not isinstance(arguments, dict):
        fail("--args must be a JSON object such as '{\"a\": 1}'", Exit.USAGE)
    flags = tool_flags(tools)
    flags.setdefault("tools", {})["reload"] = False
    flags["execution"] = {"processes": 1}
    settings = load_or_exit(config, flags)
    configure_logging("error", "auto")
    result = asyncio.run(_run(settings, name, arguments))
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(result)
    raise typer.Exit(Exit.PROBLEMS if result.get("isError") else Exit.OK)


async def _run(settings: Settings, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    service = Service(settings, enforce=False, log_problems=False)
    try:
        await service.start()
    except FileNotFoundError as error:
        fail(str(error), Exit.TOOLS)
    meta = RequestMeta(
        LATEST_PROTOCOL_VERSION,
        {},
        Implementation("mcp-tool-server call", "1"),
        "debug",
        1,
        None,
        {},
    )
    request = Call(1, "tools/call", {"name": name, "arguments": arguments}, meta)
    try:
        answer = service.router.dispatch(request, Sender())
        if not isinstance(answer, Answer):
            answer = await answer
        encoded = answer.result if isinstance(answer, Reply) else b""
        if isinstance(answer, Execution):
            encoded = await _follow(answer)
    except MissingRequiredClientCapability as error:
        asks = ", ".join(error.data["requiredCapabilities"])
        fail(f"{name} asks its client ({asks}), and here is nobody to ask", Exit.PROBLEMS)
    except ProtocolError as error:
        known = ", ".join(service.registry.catalog.tools)
        for problem in service.registry.problems:
            if problem.severity == "error":
                print_error(str(problem))
        fail(f"{error.message}. Served: {known}", Exit.PROBLEMS)
    finally:
        await service.stop()
    decoded: dict[str, Any] = orjson.loads(encoded)
    return decoded


async def _follow(execution: Execution) -> bytes:
    """Show what the tool says until it ends."""
    with Progress(console=errors, transient=True) as bar:
        task: TaskID | None = None
        while execution.result is None:
            await execution.wait()
            for message in execution.take_notifications():
                params = orjson.loads(message)["params"]
                if "progress" not in params:
                    data = (
                        params["data"] if isinstance(params["data"], str) else str(params["data"])
                    )
                    errors.print(f"[dim]{params['level']}[/dim] {escape(data)}")
                    continue
                if task is None:
                    task = bar.add_task("", total=params.get("total"))
                bar.update(
                    task,
                    completed=params["progress"],
                    total=params.get("total"),
                    description=escape(params.get("message", "")),
                )
    if execution.refusal is not None:
        raise execution.refusal
    return execution.result


def _print(result: dict[str, Any]) -> None:
    console = errors if result.get("isError") else out
    for block in result["content"]:
        match block["type"]:
            case "text":
                console.print(block["text"], markup=False, soft_wrap=True)
            case "image" | "audio":
                size = len(block["data"]) * 3 // 4
                kind = f"({block['type']}: {block['mimeType']}, about {size:,} bytes)"
                console.print(kind, markup=False)
            case "resource_link":
                console.print(f"({block['name']}: {block['uri']})", markup=False)
            case _:
                resource = block["resource"]
                console.print(f"({resource['uri']})", markup=False)
                console.print(resource.get("text", ""), markup=False, soft_wrap=True)
