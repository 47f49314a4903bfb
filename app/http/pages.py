"""How pages for people look: one template, and headers that let nothing in.

Jinja2 escapes whatever it is given, so a text of a tool cannot become markup by being forgotten.
"""

import base64
import functools
import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import HTMLResponse

from app.execution.pages import Page
from app.http.fields import fields_of

TOKEN_NAME: Final = "_token"  # noqa: S105  # the name of a field

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 34rem; margin: 3rem auto; padding: 0 1rem; }
.server { opacity: 0.7; margin: 0; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; }
.field { margin: 1.2rem 0; }
label, legend { font-weight: 600; }
fieldset { border: 0; padding: 0; margin: 0; }
fieldset label { display: block; font-weight: 400; }
input:not([type=checkbox]), select { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: 0.5rem; }
button { font: inherit; font-weight: 600; padding: 0.6rem 1.4rem; }
.hint { opacity: 0.75; font-size: 0.9rem; margin: 0.3rem 0; }
.problem { color: light-dark(#b00020, #ff8a80); margin: 0.3rem 0; }
"""  # noqa: E501  # one rule, one line
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")

HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Of every answer to a browser: no script runs, nothing is loaded, framed, kept or told on."""


@functools.cache
def _template() -> Any:
    # Not above: only servers whose users log in to pages need it, and it takes 9 MiB.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("app.http"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The style is ours, and its hash is in the policy: escaped, it would be another one.
    environment.globals["style"] = Markup(_STYLE)  # noqa: S704  # a constant
    return environment.get_template("page.html")


class Notice(NamedTuple):
    """A page that says something, with its status of HTTP."""

    title: str
    text: str
    status: int


def notice(server: str, notice: Notice) -> HTMLResponse:
    """Such a page of a server with this name."""
    shown = {"server": server, "title": notice.title, "text": notice.text, "page": None}
    return _response(shown, notice.status)


def form(
    server: str,
    page: Page,
    token: str,
    *,
    content: Mapping[str, Any] | None = None,
    problems: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """The form of a page; 422 where something is wrong with what was filled in.

    Args:
        token: Comes back with the form.
        content: What was filled in before.
    """
    shown = {
        "server": server,
        "title": "A tool asks you",
        "page": page,
        "fields": list(fields_of(page.schema, content)),
        "problems": problems or {},
        "token_name": TOKEN_NAME,
        "token": token,
    }
    return _response(shown, 422 if problems else 200)


def _response(shown: dict[str, Any], status: int) -> HTMLResponse:
    return HTMLResponse(_template().render(shown), status, headers=HEADERS)
