"""The results and notifications that this server sends, encoded once (schema of 2026-07-28)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from app.protocol.jsonrpc import dumps, encode_id, notification, result_response
from app.protocol.schema import SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY, ProgressToken, RequestId


class ServerMessages:
    """Messages that carry this server's name: every result says who produced it.

    Args:
        server_info: ``Implementation`` object of this server.
    """

    def __init__(self, server_info: Mapping[str, Any]) -> None:
        self._info: Final = dumps(server_info)
        self._meta: Final = b'"_meta":{"%b":%b' % (SERVER_INFO_KEY.encode(), self._info)
        self._result_start: Final = b'{"resultType":"complete",%b},' % self._meta

    def discover(self, result: Mapping[str, Any]) -> bytes:
        """``DiscoverResult`` from its members."""
        return self._result_start + dumps(result)[1:]

    def tools_page(
        self, tools: Sequence[bytes], *, next_cursor: str | None, cache_scope: str
    ) -> tuple[bytes, bytes]:
        """``ListToolsResult`` from encoded tools, in two parts: ``ttlMs`` goes between them.

        The last page has no ``nextCursor`` key.
        """
        cursor = b"" if next_cursor is None else b'"nextCursor":%b,' % orjson.dumps(next_cursor)
        return (
            b'%b%b"ttlMs":' % (self._result_start, cursor),
            b',"cacheScope":"%b","tools":[%b]}' % (cache_scope.encode(), b",".join(tools)),
        )

    def tool_result(
        self,
        content: bytes,
        *,
        structured: bytes | None = None,
        is_error: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> bytes:
        """``CallToolResult`` from an encoded content array and structured value."""
        own = self._meta if not meta else b"%b,%b" % (self._meta, dumps(meta)[1:-1])
        return b'{"resultType":"complete","content":%b,%b"isError":%b,%b}}' % (
            content,
            b"" if structured is None else b'"structuredContent":%b,' % structured,
            b"true" if is_error else b"false",
            own,
        )

    def structured_result(self, structured: bytes) -> bytes:
        """``CallToolResult`` of an encoded structured value, which is its text as well.

        Raises:
            ValueError: It is no UTF-8.
        """
        return (
            b'{"resultType":"complete","content":%b,"structuredContent":%b,"isError":false,%b}}'
            % (
                text_content(structured.decode()),
                structured,
                self._meta,
            )
        )

    def input_required(self, requests: Mapping[str, Any], state: str) -> bytes:
        """``InputRequiredResult``: what the client is to find out before it asks again.

        Raises:
            TypeError: A request has no JSON form.
        """
        return b'{"resultType":"input_required","inputRequests":%b,"requestState":%b,%b}}' % (
            dumps(requests),
            dumps(state),
            self._meta,
        )

    def listen_result(self, id: RequestId) -> bytes:
        """The response that ends a subscription gracefully (``SubscriptionsListenResult``)."""
        meta = b'%b,"%b":%b}' % (self._meta, SUBSCRIPTION_ID_KEY.encode(), encode_id(id))
        return result_response(id, b'{"resultType":"complete",%b}' % meta)


def meta_member(key: str, value: Any) -> bytes:
    """What ``with_meta`` adds, encoded once."""
    return b",%b:%b}}" % (dumps(key), dumps(value))


def with_meta(result: bytes, member: bytes) -> bytes:
    """An encoded result with one more member of ``_meta``.

    Every result of this server ends with its ``_meta``, which is never empty.
    """
    return result[:-2] + member


def text_content(text: str) -> bytes:
    """A content array with one text block.

    Raises:
        TypeError: The text has a lone surrogate.
    """
    return b'[{"type":"text","text":%b}]' % orjson.dumps(text)


def progress(token: ProgressToken, done: float, total: float | None, message: str | None) -> bytes:
    """``notifications/progress``."""
    params: dict[str, Any] = {"progressToken": token, "progress": done}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    return notification("notifications/progress", params)


def log_message(level: str, data: Any, logger: str | None) -> bytes:
    """``notifications/message`` (deprecated by the specification, still served)."""
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return notification("notifications/message", params)


def acknowledged(id: RequestId, kinds: Iterable[str]) -> bytes:
    """``notifications/subscriptions/acknowledged``: what a stream will be told of."""
    return notification(
        "notifications/subscriptions/acknowledged",
        {"_meta": {SUBSCRIPTION_ID_KEY: id}, "notifications": dict.fromkeys(kinds, True)},
    )


def tools_list_changed(id: RequestId) -> bytes:
    """``notifications/tools/list_changed`` for one subscription."""
    return notification("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION_ID_KEY: id}})


def cancelled(id: RequestId) -> bytes:
    """``notifications/cancelled``, by which a server ends a subscription over stdio."""
    return notification("notifications/cancelled", {"requestId": id})
