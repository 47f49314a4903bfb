"""For whom a token was made."""

from typing import Any

from app.auth.audience import Audiences
from tests.support.cases import rows

RESOURCE = "https://tools.example.com/mcp"


@rows(
    "claim, accepted",
    ("as configured", RESOURCE, True),
    ("a slash at the end", RESOURCE + "/", True),
    ("the host in capitals", "https://TOOLS.Example.com/mcp", True),
    ("the scheme in capitals", "HTTPS://tools.example.com/mcp", True),
    ("the default port", "https://tools.example.com:443/mcp", True),
    ("one of several", ["https://other.example", RESOURCE], True),
    ("a name of the settings", "api://tools", True),
    ("that name in another case", "API://tools", False),
    ("the path in capitals", "https://tools.example.com/MCP", False),
    ("another port", "https://tools.example.com:8443/mcp", False),
    ("the other scheme", "http://tools.example.com/mcp", False),
    ("the host alone", "https://tools.example.com", False),
    ("a longer path", RESOURCE + "/x", False),
    ("two slashes at the end", RESOURCE + "//", False),
    ("a query", RESOURCE + "?a=1", False),
    ("an empty query", RESOURCE + "?", False),
    ("a fragment", RESOURCE + "#", False),
    ("a user", "https://a@tools.example.com/mcp", False),
    ("a host that begins so", "https://tools.example.com.evil.test/mcp", False),
    ("a line break", "https://tools.exa\nmple.com/mcp", False),
    ("a space", " " + RESOURCE, False),
    ("letters that only look so", "https://tool\u017f.example.com/mcp", False),
    ("a path that leads there", "https://tools.example.com/x/../mcp", False),
    ("none of several", ["https://other.example"], False),
    ("an empty list", [], False),
    ("none", None, False),
    ("a number", 1, False),
    ("a list with a number", [RESOURCE, 1], False),
    ("an object", {RESOURCE: 1}, False),
    ("nothing", "", False),
)
def test_the_audience(claim: Any, accepted: bool) -> None:
    assert Audiences(RESOURCE, ["api://tools"]).accept(claim) is accepted


@rows(
    "resource, claim",
    ("IPv6", "http://[::1]:8000/mcp", "http://[::1]:8000/mcp/"),
    ("the default port left out", "http://localhost:80/mcp", "http://LOCALHOST/mcp"),
    ("a host of letters beyond ASCII", "https://bücher.example/mcp", "https://bücher.example/mcp"),
)
def test_other_resources(resource: str, claim: str) -> None:
    assert Audiences(resource).accept(claim)
