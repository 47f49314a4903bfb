"""The store of docker-compose.yml: the shipped configuration and user, in real servers."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from tests.support.balancers import DEPLOY, free_port, replaced
from tests.support.stores import BINARIES, KINDS
from tests.support.waiting import eventually

ONCE = Retry(NoBackoff(), 0)
SETS_TWO = "redis.call('SET', KEYS[1], 'a', 'EX', 60); redis.call('SET', KEYS[2], 'b', 'EX', 60)"
"""A script that writes twice stands in the log as a transaction."""


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Redis]:
    """A server with the shipped files, and a client that is its one user."""
    port = free_port()
    config = folder / "valkey.conf"
    changes = {
        "port 6379": f"port {port}\nbind 127.0.0.1",
        "/run/secrets/valkey_acl": str(folder / "valkey.acl"),
        "dir /data": f"dir {folder}",
    }
    shipped = (DEPLOY / "valkey" / "valkey.conf").read_text("utf-8")
    config.write_text(replaced(shipped, changes), "utf-8")
    process = subprocess.Popen([str(BINARIES[kind]), str(config)], stdout=subprocess.DEVNULL)
    password = (folder / "valkey-password").read_text()
    client = Redis(port=port, username="mcp", password=password)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except RedisConnectionError:
            return False

    try:
        eventually(answers, "the store answers")
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the secrets, made as `make key` makes them."""
    script = ["sh", str(DEPLOY / "secrets.sh"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_what_scripts_have_written_is_there_after_a_restart(kind: str, folder: Path) -> None:
    """The log is read again in the name of a user, who must be allowed to."""
    with running(kind, folder) as client:
        client.eval(SETS_TWO, 2, "mcp:one", "mcp:two")
    with running(kind, folder) as client:
        assert client.mget("mcp:one", "mcp:two") == [b"a", b"b"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_user_does_what_servers_do_and_no_more(kind: str, folder: Path) -> None:
    with running(kind, folder) as client:
        assert client.publish("mcp:news", "x") == 0
        for refused in (
            lambda: client.set("other", "x"),
            lambda: client.publish("other", "x"),
            client.flushall,
            client.config_get,
            client.acl_list,
            client.keys,
        ):
            with pytest.raises(NoPermissionError):
                refused()


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_gets_in(kind: str, folder: Path) -> None:
    with running(kind, folder) as client:
        port = client.connection_pool.connection_kwargs["port"]
        with (
            Redis(port=port, protocol=2, retry=ONCE) as nobody,
            pytest.raises(AuthenticationError, match="Authentication required"),
        ):
            nobody.ping()
        for user, password in (("default", ""), ("default", "x"), ("mcp", "x")):
            with (
                Redis(
                    port=port, username=user, password=password, protocol=2, retry=ONCE
                ) as stranger,
                pytest.raises((AuthenticationError, ResponseError)),
            ):
                stranger.ping()
