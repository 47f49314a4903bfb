"""A server that is killed while it runs a call with an idempotency key: it is never run again."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.courses.test_idempotency import KEY, keyed
from tests.fleet.conftest import ADA, NEW, TOOLS, config, start_all
from tests.support.client import Reply, meta
from tests.support.server import ServerProcess
from tests.support.stores import ANY_KIND, TO_DISK, RedisServer
from tests.support.waiting import eventually


@pytest.mark.timeout(90)
def test_whoever_repeats_it_is_told_that_nobody_knows(tmp_path: Path) -> None:
    """On another server, on the one that comes in its place, and after a restart of the store."""
    key = str(uuid.uuid4())
    arguments = {"folder": str(tmp_path), "order": "one", "wait_s": 30}
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(ANY_KIND, args=TO_DISK))
        servers = [
            ServerProcess(TOOLS, config(redis, [NEW]), ahead_s=ahead_s, start=False)
            for ahead_s in (0.0, 60.0, 0.0)
        ]
        killed, other, later = servers
        start_all(stack, [other])
        killed.start()
        try:
            with killed.client.connect() as connection:
                said = meta(**{KEY: key, "mcp-tool-server/timeoutMs": 1000})
                params = {"name": "pay", "arguments": arguments}
                request = killed.client.request("tools/call", params, ADA, meta_=said)
                connection.send(request.encode())
                eventually((tmp_path / "one").exists, "it runs")
                redis.restart()
                eventually(lambda: killed.logs("state_back", part="store"), "the store is back")
        finally:
            killed.discard()
        start_all(stack, [later])

        def repeat(server: ServerProcess) -> Reply:
            return keyed(server.client, key, "pay", arguments, ADA, timeout_s=25)

        with ThreadPoolExecutor(2) as pool:
            replies = list(pool.map(repeat, (other, later)))
        replies.append(repeat(other))
    for reply in replies:
        assert reply.is_error
        assert "its outcome is not known" in reply.text
    assert (tmp_path / "one").read_text().splitlines() == ["paid"]
