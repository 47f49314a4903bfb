"""Tools with hooks around them."""

from typing import Annotated, TypedDict

from app import Context, Header, Text, ToolError, ToolResult, tool


class Echo(TypedDict):
    """What was sent."""

    text: str
    by: str


def _echo(text: str, by: str) -> Echo:
    if text == "fail":
        raise ToolError("it failed")
    return {"text": text, "by": by}


@tool
async def echo(text: str, by: str = "nobody") -> Echo:
    """Say it again."""
    return _echo(text, by)


@tool
def echo_in_thread(text: str, by: str = "nobody") -> Echo:
    """Say it again in a thread."""
    return _echo(text, by)


@tool(isolation="process")
def echo_apart(text: str, by: str = "nobody") -> Echo:
    """Say it again in a process."""
    return _echo(text, by)


@tool(annotations={"read_only": True}, cache_ttl_s=60, cache_scope="shared")
async def echo_kept(text: str, by: str = "nobody") -> Echo:
    """Say it again, and keep it for all."""
    return _echo(text, by)


@tool
async def blocks(text: str) -> list[Text]:
    """Say it in blocks."""
    return [Text(text), Text("and more")]


@tool(structured=False)
async def plainly(text: str) -> str:
    """Say it as text alone."""
    return text


@tool
async def explicit(text: str) -> ToolResult:
    """Say it with everything."""
    return ToolResult(
        content=[text], structured_content={"text": text}, meta={"example.com/own": 1}
    )


@tool
async def placed(text: str, region: Annotated[str, Header("Region")] = "eu") -> str:
    """Say it in a region, which the response repeats."""
    return f"{text} {region}"


@tool
async def reports(ctx: Context, text: str) -> str:
    """Say something on the way."""
    ctx.progress(1, 2, text)
    ctx.log("info", {"said": text})
    return text
