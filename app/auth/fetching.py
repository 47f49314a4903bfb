"""Asks an authorization server, and believes nothing about the answer."""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

import httpx2
import orjson

from app.settings import normal_origin

MAX_BODY_BYTES: Final = 512 * 1024
MAX_REDIRECTS: Final = 3
# Compressed, a small body could become a large one before its size is known.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


class FetchFailed(Exception):
    """There is no answer to use.

    Attributes:
        reason: For the log; without any word of the other side.
        reached: Whether there was an answer, so that another address may do better.
        status: Of HTTP, where it was the reason.
    """

    def __init__(self, reason: str, *, reached: bool, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.reached = reached
        self.status = status


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class Fetcher:
    """Requests to one issuer.

    Args:
        timeout_s: For one request, from name resolution to the last byte.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Close its connections; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def get(self, url: str) -> Mapping[str, Any]:
        """The JSON object at a URL. Redirects count within its origin alone.

        Raises:
            FetchFailed: There is none.
        """
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._ask("GET", url)
            if isinstance(answer, Mapping):
                return answer
            target = urljoin(url, answer)
            if _origin(target) != _origin(url):
                raise FetchFailed("it redirects elsewhere", reached=True)
            url = target
        raise FetchFailed("it redirects too often", reached=True)

    async def post(
        self, url: str, form: Mapping[str, str], authorization: str | None
    ) -> Mapping[str, Any]:
        """The JSON object that answers a form; redirects do not count.

        Args:
            authorization: Of this server at the issuer; None where it has no secret there.

        Raises:
            FetchFailed: There is none.
        """
        headers = {} if authorization is None else {"authorization": authorization}
        answer = await self._ask("POST", url, form, headers)
        if isinstance(answer, Mapping):
            return answer
        raise FetchFailed("it redirects", reached=True)

    async def _ask(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any] | str:
        """An object, or where a redirect leads."""
        client = await self._ready()
        sent = {**_HEADERS, **(headers or {})}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                client.stream(method, url, data=form, headers=sent) as response,
            ):
                return await _read(response)
        except (TimeoutError, httpx2.TimeoutException):
            raise FetchFailed(
                f"it did not answer within {self._timeout_s:g} s", reached=False
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # The class says enough; the text may hold more than a log should.
            raise FetchFailed(f"{type(error).__name__}", reached=False) from None

    async def _ready(self) -> httpx2.AsyncClient:
        if self._client is None:
            tls = await asyncio.to_thread(_tls)  # reads the certificates of all authorities
            if self._client is None:  # another request may have been first
                self._client = httpx2.AsyncClient(
                    verify=tls, timeout=self._timeout_s, follow_redirects=False
                )
        return self._client


async def _read(response: httpx2.Response) -> Mapping[str, Any] | str:
    status = response.status_code
    location = response.headers.get("location")
    if status in (301, 302, 303, 307, 308) and location is not None:
        return str(location)
    if status != 200:
        raise FetchFailed(f"status {status}", reached=True, status=status)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise FetchFailed("it compresses, though asked not to", reached=True)
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise FetchFailed(f"its answer is longer than {MAX_BODY_BYTES} bytes", reached=True)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise FetchFailed("its answer is no JSON object", reached=True)
    return document


def _origin(url: str) -> str | None:
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        return None
    if parts.userinfo:
        return None
    return normal_origin(f"{parts.scheme}://{parts.netloc.decode('ascii')}")
