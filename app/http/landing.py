"""The pages to which ``ctx.elicit_page`` sends users, and the login before them.

A page is shown to the user whose call asks, and to nobody else: whoever opens it logs in at the
issuer of that call, and must be the same subject there (Elicitation, "Phishing"). The browser
carries the login between its steps, sealed, so nothing is remembered here.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from app.auth.login import Attempt, Login, new_attempt
from app.auth.problems import IssuerUnavailable, Refused
from app.execution.pages import Page, Pages
from app.http.cookies import SealedCookies
from app.http.fields import Sent, content_of, parse_form
from app.http.gate import Gate
from app.http.pages import HEADERS, TOKEN_NAME, Notice, form, notice
from app.observability.logs import printable
from app.protocol.headers import HeaderMap
from app.protocol.sealed import KeyRing
from app.settings import Settings, normal_origin
from app.state.interface import StoreUnavailable

LOGIN_S: Final = 600
"""How long a user may take to log in."""
SESSION_S: Final = 900
"""And then to fill in the form."""
MAX_FORM_BYTES: Final = 64 * 1024
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_STATE: Final = re.compile(r"([0-9a-f]{16})\.[0-9a-f]{48}")

GONE: Final = Notice(
    "Nothing here",
    "This link is not valid: it is unknown, its time is over, or it was used already. Go back to "
    "where you came from; if something is still missing, you are asked again.",
    404,
)
"""One answer, whatever the reason: whoever tries handles learns nothing."""
NOT_LOGGED_IN: Final = Notice("Not logged in", "The login has ended. Open the link again.", 403)
LOST: Final = Notice(
    "Not logged in",
    "This login was not begun in this browser, or has taken too long. Open the link again.",
    400,
)
FAILED: Final = Notice("Not logged in", "The login failed. Open the link again.", 403)
NOT_FOR_YOU: Final = Notice(
    "Not for you",
    "This link was made for another user. If somebody sent it to you, do not go on. If it is "
    "yours, log out where you have just logged in, and open the link again.",
    403,
)
NO_FORM: Final = Notice("Not a form", "This is not what the form sends.", 400)
TOO_LONG: Final = Notice("Too much", "What was entered is too long.", 413)
NOT_NOW: Final = Notice(
    "Not now", "Something that is needed cannot be reached at the moment. Try again later.", 503
)
BROKEN: Final = Notice("Something went wrong", "The log of the server says more.", 500)
DONE: Final = Notice(
    "Thank you", "You can close this page and go back to where you came from.", 200
)

log = structlog.get_logger()


class _Instead(Exception):
    """A notice takes the place of what was asked for."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(notice.title)
        self.notice = notice


class Landing:
    """Serves the pages of one server.

    Args:
        settings: Its own address and names, which do not change while it runs.
        login: Gives what logs users of an issuer in; None: nothing does.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        settings: Settings,
        pages: Pages,
        keys: KeyRing,
        *,
        login: Callable[[str], Login | None],
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._pages, self._login, self._random = pages, login, random
        self._url = settings.pages_url
        self._callback = f"{self._url}/callback"
        parts = urlsplit(self._url)
        self._origin = normal_origin(f"{parts.scheme}://{parts.netloc}")
        self._server = settings.server.title or settings.server.name
        self._gate = Gate(settings.server)
        self._logins, self._sessions = (
            SealedCookies(
                keys,
                purpose=purpose,
                is_secure=parts.scheme == "https",
                path=parts.path,
                clock=clock,
                random=random,
            )
            for purpose in ("page login 1", "page session 1")
        )

    async def answer(self, request: Request) -> Response:
        """Answer a request for a page.

        Raises:
            MisdirectedRequest: The Host is not one of this server's.
        """
        self._gate.check_host(HeaderMap(request.scope["headers"]))
        try:
            return await self._step(request)
        except _Instead as instead:
            said = instead.notice
        except (StoreUnavailable, IssuerUnavailable):
            said = NOT_NOW
        except ClientDisconnect:
            said = NO_FORM
        except Exception as error:  # noqa: BLE001  # a bug of ours; it must get an answer
            # Not the traceback: a text in it may be what somebody has typed.
            log.error("page_failed", error=type(error).__name__)  # noqa: TRY400  # as said
            said = BROKEN
        return notice(self._server, said)

    # The steps

    async def _step(self, request: Request) -> Response:
        handle = request.path_params.get("handle")
        if handle is None:
            return await self._come_back(request)
        if request.method == "POST":
            return await self._submit(request, handle)
        return await self._show(request, handle)

    async def _show(self, request: Request, handle: str) -> Response:
        page, login = await self._find(handle)
        token = self._token(request, handle, page)
        if token is not None:
            return form(self._server, page, token)
        attempt = new_attempt(self._random)
        state = f"{_tag(handle)}.{self._random(24).hex()}"
        url = await login.address(attempt, state=state, redirect_uri=self._callback)
        response = RedirectResponse(url, 303, headers=HEADERS)
        kept = [handle, page.issuer, *attempt]
        self._logins.keep(response, _name(_tag(handle)), kept, bound_to=[state], for_s=LOGIN_S)
        return response

    async def _come_back(self, request: Request) -> Response:
        """From the issuer."""
        query = request.query_params
        state, code, named = (_single(query.getlist(name)) for name in ("state", "code", "iss"))
        found = _STATE.fullmatch(state or "")
        if state is None or found is None:
            raise _Instead(LOST)
        # Bound to the state: only the browser that was sent to log in has the cookie that it
        # opens, so nobody can log another person's browser in as somebody else.
        name = _name(found[1])
        opened = self._logins.read(request, name, bound_to=[state])
        if opened is None:
            raise _Instead(LOST)
        handle, issuer, *attempt = opened
        try:
            page = await self._logged_in(handle, issuer, Attempt(*attempt), code, named)
        except _Instead as instead:
            response: Response = notice(self._server, instead.notice)
            self._logins.forget(response, name)
            return response
        response = RedirectResponse(f"{self._url}/{handle}", 303, headers=HEADERS)
        token = self._random(24).hex()
        bound_to = [handle, page.issuer, page.subject]
        self._sessions.keep(response, name, token, bound_to=bound_to, for_s=SESSION_S)
        return response

    async def _logged_in(
        self, handle: str, issuer: str, attempt: Attempt, code: str | None, named: str | None
    ) -> Page:
        """The page, if it is for whoever has logged in."""
        page, login = await self._find(handle)
        if page.issuer != issuer:
            raise _Instead(GONE)
        if code is None:
            log.warning("login_refused", issuer=issuer, tool=page.tool, reason="It sent no code.")
            raise _Instead(FAILED)
        try:
            subject = await login.subject(
                attempt, code=code, named=named, redirect_uri=self._callback
            )
        except Refused as refused:
            log.warning("login_refused", issuer=issuer, tool=page.tool, reason=str(refused))
            raise _Instead(FAILED) from None
        if subject != page.subject:
            shown = printable(subject, 128)
            log.warning("page_refused", issuer=issuer, tool=page.tool, subject=shown)
            raise _Instead(NOT_FOR_YOU)
        return page

    async def _submit(self, request: Request, handle: str) -> Response:
        page, _ = await self._find(handle)
        token = self._token(request, handle, page)
        # Not to the login from here: the policy of the form lets it lead nowhere else.
        if token is None or not self._is_own(request):
            raise _Instead(NOT_LOGGED_IN)
        sent = await _sent(request)
        shown = _single(sent.get(TOKEN_NAME, ()))
        if shown is None or not secrets.compare_digest(shown.encode(), token.encode()):
            raise _Instead(NOT_LOGGED_IN)
        content = content_of(page.schema, sent)
        problems = self._problems(page, content)
        if problems:
            return form(self._server, page, token, content=content, problems=problems)
        if not await self._pages.complete(handle, page, content):
            raise _Instead(GONE)
        who = printable(page.subject, 128)
        log.info("page_completed", issuer=page.issuer, tool=page.tool, subject=who)
        response = notice(self._server, DONE)
        self._sessions.forget(response, _name(_tag(handle)))
        return response

    # What they need

    async def _find(self, handle: str) -> tuple[Page, Login]:
        page = await self._pages.find(handle)
        login = self._login(page.issuer) if page is not None else None
        if page is None or login is None:
            raise _Instead(GONE)
        return page, login

    def _token(self, request: Request, handle: str, page: Page) -> str | None:
        """What the form must send back, if this browser's user is the one of the page."""
        bound_to = [handle, page.issuer, page.subject]
        token: str | None = self._sessions.read(request, _name(_tag(handle)), bound_to=bound_to)
        return token

    def _is_own(self, request: Request) -> bool:
        """Whether a form was sent from a page of this server, as far as the browser says.

        ``null`` is what browsers send under our own Referrer-Policy; the form's token decides.
        """
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        is_own = origin in (None, "null") or normal_origin(str(origin)) == self._origin
        return is_own and site not in ("cross-site", "same-site")

    def _problems(self, page: Page, content: dict[str, object]) -> dict[str, str]:
        try:
            return self._pages.problems(page, content)
        except Exception as error:  # noqa: BLE001  # validators are the author's code
            # Not its text, which may hold what was typed.
            log.error("page_check_failed", tool=page.tool, error=type(error).__name__)  # noqa: TRY400  # as said
            return {"": "What you entered cannot be checked: the tool has a mistake."}


async def _sent(request: Request) -> Sent:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        raise _Instead(NO_FORM)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise _Instead(TOO_LONG)
    try:
        return parse_form(bytes(body))
    except ValueError:
        raise _Instead(NO_FORM) from None


def _single(values: Sequence[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def _tag(handle: str) -> str:
    """Tells the pages apart that a browser may have open. It is no secret, and leads to none."""
    return hashlib.sha256(f"tag {handle}".encode()).hexdigest()[:16]


def _name(tag: str) -> str:
    """Of a page's one cookie: first for the login, then for what it came to."""
    return f"elicit-{tag}"
