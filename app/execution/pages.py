"""Pages of this server: what a call asks its user there, and what the user entered.

A page is found by its handle, which is all that its URL has. Both records of a page are sealed,
and the store knows a hash of the handle alone: whoever reads the store learns nothing, and
whoever writes to it can pass nothing off as a user's.
"""

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from pydantic import BaseModel

from app.principal import Principal
from app.protocol.jsonrpc import canonical, dumps, loads
from app.protocol.sealed import KeyRing, Sealer, Unopened
from app.registry.explain import explain_fields
from app.registry.forms import Form, form_of
from app.registry.schemas import compile_explainer
from app.settings import Settings
from app.state.interface import Store
from app.toolkit import ToolError
from app.toolkit.handles import owner_of

HANDLE_BYTES: Final = 32
MAX_SEALED_CHARACTERS: Final = 512 * 1024
"""Of a record; a form of 64 KiB fits in, however it is encoded."""
_HANDLE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Page(NamedTuple):
    """What a page shows, and to whom alone.

    Attributes:
        issuer: Of the caller whose call asks.
        subject: Who that is there.
        tool: Which tool asks.
        message: What for.
        schema: The form; see ``app.registry.forms``.
    """

    issuer: str
    subject: str
    tool: str
    message: str
    schema: dict[str, Any]


class Pages:
    """The pages that wait for a user, and what was entered on others.

    Every method that waits raises ``StoreUnavailable`` where the store cannot answer.

    Args:
        ttl_s: How long a page waits, and how long what was entered is kept.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        keys: KeyRing,
        store: Store,
        *,
        ttl_s: float,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._store, self._ttl_s, self._clock, self._random = store, ttl_s, clock, random
        self._pages = Sealer(keys, purpose="page 1", max_characters=MAX_SEALED_CHARACTERS)
        self._contents = Sealer(keys, purpose="entered 1", max_characters=MAX_SEALED_CHARACTERS)
        # Models of modules that are in use; one of another version is let go with it.
        self._models: WeakValueDictionary[bytes, type[BaseModel]] = WeakValueDictionary()

    def new_handle(self) -> str:
        """A handle that nobody can guess."""
        return base64.urlsafe_b64encode(self._random(HANDLE_BYTES)).rstrip(b"=").decode("ascii")

    # For the call.

    async def open(self, handle: str, page: Page, model: type[BaseModel]) -> None:
        """Let a page wait for its user, from now on for the whole time."""
        self._models[_model_name(page)] = model
        sealed = self._seal(self._pages, list(page), _digest(handle))
        owner = owner_of((page.issuer, page.subject))
        await self._store.set(_page_name(handle), sealed, ttl_s=self._ttl_s, owner=owner)

    async def close(self, handle: str) -> None:
        """The user does not want to: the page is there no longer, nor what was entered on it."""
        await self._store.delete(_page_name(handle))
        await self._store.delete(_content_name(handle))

    async def entered(self, handle: str, principal: Principal) -> dict[str, Any] | None:
        """What this caller's user entered on a page; None: nothing yet, or no longer."""
        found = await self._store.get(_content_name(handle))
        bound_to = _digest(handle, principal.issuer, principal.subject)
        content: dict[str, Any] | None = self._opened(self._contents, found, bound_to)
        return content

    # For the page.

    async def find(self, handle: str) -> Page | None:
        """The page with a handle; None: unknown, over or completed, which look the same."""
        if not _HANDLE.fullmatch(handle):
            return None
        opened = self._opened(
            self._pages, await self._store.get(_page_name(handle)), _digest(handle)
        )
        if opened is None or await self._store.get(_content_name(handle)) is not None:
            return None
        return Page(*opened)

    async def complete(self, handle: str, page: Page, content: Mapping[str, Any]) -> bool:
        """Keep what the user entered. False: somebody was faster, a page is completed once."""
        bound_to = _digest(handle, page.issuer, page.subject)
        sealed = self._seal(self._contents, content, bound_to)
        return await self._store.replace(
            _content_name(handle),
            None,
            sealed,
            ttl_s=self._ttl_s,
            owner=owner_of((page.issuer, page.subject)),
        )

    def problems(self, page: Page, content: Mapping[str, Any]) -> dict[str, str]:
        """What is wrong with what was entered, by field; see ``Form.problems``."""
        model = self._models.get(_model_name(page))
        if model is not None:
            form: Form[BaseModel] = form_of(model, on_page=True)
            return form.problems(content)
        # Another server has the model: what it demands beyond the schema shows when the tool
        # reads the answer, and is asked for again.
        return explain_fields(compile_explainer(page.schema, what="the form"), content)

    def _seal(self, sealer: Sealer, value: Any, bound_to: bytes) -> bytes:
        token = sealer.seal(
            dumps(value),
            bound_to=bound_to,
            expires_at=self._clock() + self._ttl_s,
            nonce=self._random(12),
        )
        return token.encode("ascii")

    def _opened(self, sealer: Sealer, found: bytes | None, bound_to: bytes) -> Any:
        if found is None:
            return None
        try:
            return loads(sealer.open(found.decode("ascii"), bound_to=bound_to, now=self._clock()))
        except Unopened:
            return None


def pages_url(settings: Settings, principal: Principal) -> str:
    """Where a caller's pages are.

    Raises:
        ToolError: Nobody could tell whether a browser's user is this caller.
    """
    needs = "This tool asks for something on a page of this server, where its user must log in"
    if principal.issuer is None:
        raise ToolError(f"{needs}; a caller without a credential has no user. Send a token.")
    for issuer in settings.auth.issuers:
        if issuer.issuer == principal.issuer:
            if issuer.browser is not None:
                return settings.pages_url
            raise ToolError(
                f"{needs}, and users of this caller's issuer cannot: the server's configuration "
                "has no [auth.issuers.browser] for it."
            )
    raise ToolError(f"{needs}; an API key has no user. Call with a token of an issuer.")


def no_pages_url(_: Principal) -> str:
    """Where pages are of a process that has no door for browsers.

    Raises:
        ToolError: Always.
    """
    raise ToolError(
        "This tool asks for something on a page of this server, which is served over HTTP alone."
    )


def _digest(*parts: str | None) -> bytes:
    return hashlib.sha256(canonical(list(parts))).digest()


def _page_name(handle: str) -> str:
    return "page:" + _digest("page", handle).hex()


def _content_name(handle: str) -> str:
    return "entered:" + _digest("entered", handle).hex()


def _model_name(page: Page) -> bytes:
    return hashlib.sha256(canonical([page.tool, page.schema])).digest()
