"""Browsers of people, and calls that send them to pages."""

import html
import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urljoin, urlsplit

import httpx2

from tests.asking.rounds import ask, questions, state_of
from tests.auth.office import bearer
from tests.support.client import Reply
from tests.support.identity import IdentityProvider
from tests.support.server import ServerProcess

REQUEST_S: Final = 10.0
STEPS: Final = 12
_INPUT: Final = re.compile(r'<input type="hidden" name="_token" value="([^"]+)">')


class Browser:
    """The browser of a person, in which they are logged in at their issuer.

    Attributes:
        seen: Every URL that it has visited.
    """

    def __init__(self, provider: IdentityProvider, account: str) -> None:
        self._home, self._account = urlsplit(provider.issuer).netloc, account
        self.client = httpx2.Client(timeout=REQUEST_S)
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.client.close()

    def step(self, url: str) -> httpx2.Response:
        """One request, as the person it is."""
        parts = urlsplit(url)
        if parts.netloc == self._home and parts.path == "/auth":
            url = f"{url}&{urlencode({'login_hint': self._account})}"
        self.seen.append(url)
        return self.client.get(url)

    def open(self, url: str, until: str | None = None) -> httpx2.Response:
        """Open a page, following redirects; or stop before the path that `until` names."""
        for _ in range(STEPS):
            response = self.step(url)
            if not response.is_redirect:
                return response
            url = urljoin(url, response.headers["location"])
            if until is not None and urlsplit(url).path == until:
                return response
        raise AssertionError(f"no end of redirects: {self.seen}")

    def send(
        self,
        url: str,
        page: httpx2.Response | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> httpx2.Response:
        """Send the form of a page, with these fields."""
        data = dict(fields)
        if page is not None:
            data = {"_token": token_of(page), **data}
        return self.client.post(url, data=data, headers={"origin": "null", **(headers or {})})


def token_of(page: httpx2.Response) -> str:
    """What the form of a page carries."""
    found = _INPUT.search(page.text)
    assert found, f"{page.status_code}: {page.text}"
    return html.unescape(found[1])


class Call:
    """A call of a tool, round by round, by somebody with a token.

    Attributes:
        said: Every answer of the server, as it came over the wire, and every state.
    """

    def __init__(self, server: ServerProcess, token: str, tool: str, **arguments: Any) -> None:
        self._server, self._token, self._tool, self._arguments = server, token, tool, arguments
        self.said: list[bytes] = []
        self.reply = self._ask()

    def _ask(self, answers: Any = None, state: str | None = None) -> Reply:
        reply = ask(
            self._server.client,
            self._tool,
            self._arguments,
            answers,
            state,
            headers=bearer(self._token),
        )
        self.said.append(reply.response.body)
        return reply

    def url(self, key: str = "account") -> str:
        """The page that the call asks its user to open."""
        request = questions(self.reply)[key]
        assert request["params"]["mode"] == "url"
        url: str = request["params"]["url"]
        return url

    @property
    def message(self) -> str:
        """What the call asks."""
        (request,) = questions(self.reply).values()
        text: str = request["params"]["message"]
        return text

    def again(self, action: str | None = "accept", key: str = "account", **more: Any) -> Reply:
        """The next round, with this answer of the client."""
        answers = {**({} if action is None else {key: {"action": action}}), **more}
        self.reply = self._ask(answers, state_of(self.reply))
        return self.reply


def filled(**changes: Any) -> dict[str, Any]:
    """The form of an account, filled in."""
    return {
        "user": "ada",
        "api_key": "key-12345678",
        "region": "us",
        "days": "7",
        "areas": ["mail", "files"],
        **changes,
    }
