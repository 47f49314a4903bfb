"""The files for the balancers, as their programs and the server's defaults see them."""

import base64
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from app.auth.api_keys import ApiKeys, all_api_keys
from app.auth.problems import Refused
from app.configuration import load_settings
from app.settings import Settings
from tests.support.balancers import BALANCERS, DEPLOY, Balancer, HAProxy, Pools
from tests.support.certificates import Certificate
from tests.support.server import ROOT

KINDS = pytest.mark.parametrize("kind", BALANCERS, ids=lambda kind: kind.name)
SEVERAL: Final = Pools(
    replicas=("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), heavy="127.0.0.1:4", eu="127.0.0.1:5"
)
DEFAULTS: Final = Settings()
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


def check(balancer: Balancer, **environment: str) -> str:
    """What a program says of its configuration; it must find no fault."""
    done = subprocess.run(
        balancer.checker(balancer.write()),
        env={**os.environ, **balancer.environment(), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@KINDS
def test_the_program_finds_no_fault(kind: type[Balancer], certificate: Certificate) -> None:
    balancer = kind(SEVERAL, certificate)
    said = check(balancer)
    balancer.stop()

    assert not re.search(r"warning|deprecated", said, re.IGNORECASE), said


HAPROXY_ENVIRONMENTS: Final = {
    "plain HTTP": {"MCP_CERTIFICATE": ""},
    "no pools of their own": {"MCP_HEAVY": "", "MCP_EU": ""},
    "a name for all": {"MCP_REPLICAS": "localhost:8000", "MCP_HEAVY": "", "MCP_EU": ""},
    "names for pools": {
        "MCP_REPLICAS": "localhost:8000",
        "MCP_HEAVY": "localhost:8001",
        "MCP_EU": "localhost:8002",
    },
}


@pytest.mark.parametrize("variables", HAPROXY_ENVIRONMENTS.values(), ids=HAPROXY_ENVIRONMENTS)
def test_haproxy_takes_every_form_of_its_environment(
    certificate: Certificate, variables: dict[str, str]
) -> None:
    balancer = HAProxy(SEVERAL, certificate)
    said = check(balancer, **variables)
    balancer.stop()

    assert "warning" not in said.lower(), said


def seconds(text: str) -> float:
    """A duration such as 60s or 500ms."""
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * UNITS[unit]


# What bounds silence towards clients and servers, and what idle connections to servers may last.
SILENCE: Final = {
    "haproxy": r"timeout (?:client|server) (\S+)",
    "nginx": r"(?:proxy_read_timeout|proxy_send_timeout|send_timeout) (\S+);",
    "envoy": r"stream_idle_timeout: (\S+)",
}
IDLE: Final = {
    "haproxy": r"timeout http-keep-alive (\S+)",
    "nginx": r"keepalive_timeout (\S+);",
    "envoy": r"idle_timeout: (\d+s)",
}


@KINDS
def test_silence_may_last_longer_than_the_server_is_silent(kind: type[Balancer]) -> None:
    text = kind.shipped.read_text("utf-8")
    execution = DEFAULTS.execution
    longest = max(execution.keep_alive_s, execution.silence_s)

    found = [seconds(each) for each in re.findall(SILENCE[kind.name], text)]
    assert found
    assert min(found) >= 2 * longest


@KINDS
def test_balancers_give_up_idle_connections_before_the_server_does(kind: type[Balancer]) -> None:
    text = kind.shipped.read_text("utf-8")

    found = [seconds(each) for each in re.findall(IDLE[kind.name], text)]
    assert found
    assert max(found) < DEFAULTS.server.keep_alive_s


SIZES: Final = {
    "haproxy": (r"req\.body_size gt (\d+)", 1, r"tune\.bufsize 73728\n    tune\.maxrewrite 8192"),
    "nginx": (r"client_max_body_size (\d+)m", 1 << 20, r"large_client_header_buffers 2 64k"),
    "envoy": (r"range_match: \{start: (\d+),", 1, r"max_request_headers_kb: 64 "),
}


@KINDS
def test_sizes_are_those_of_the_server(kind: type[Balancer]) -> None:
    text = kind.shipped.read_text("utf-8")
    pattern, unit, head = SIZES[kind.name]
    (body,) = re.findall(pattern, text)

    allowed = int(body) * unit - (1 if kind.name == "envoy" else 0)
    assert allowed == DEFAULTS.server.max_body_bytes
    assert re.search(head, text)
    assert DEFAULTS.server.max_header_bytes == 64 * 1024 == 73728 - 8192


@KINDS
def test_every_encoded_spelling_has_its_plain_one_beside_it(kind: type[Balancer]) -> None:
    """A header may carry either, so a rule that knows one of them can be passed by."""
    text = kind.shipped.read_text("utf-8")
    encoded = re.findall(r"=\\\?base64\\\?([A-Za-z0-9+/]+=*)\\\?=", text)
    plain = {base64.b64decode(each).decode() for each in encoded}

    if kind.name == "haproxy":
        assert plain == set(), "it decodes by itself"
        assert text.count("b64dec") == 2
    else:
        assert plain == {"export_report", "render_chart", "execute_sql", "eu-west1"}
        assert [each for each in plain if not re.search(rf"\b{each}\b", text)] == []


@KINDS
def test_the_tools_that_are_named_are_those_that_ship(kind: type[Balancer]) -> None:
    text = kind.shipped.read_text("utf-8")

    for name in ("export_report", "render_chart", "execute_sql"):
        assert name in text
        assert (ROOT / "tools" / f"{name}.py").is_file()
    assert "eu-west1" in (ROOT / "tools" / "execute_sql.py").read_text("utf-8")


@KINDS
def test_only_a_revision_that_checks_headers_is_routed_by_them(kind: type[Balancer]) -> None:
    text = kind.shipped.read_text("utf-8")

    assert set(re.findall(r"20\d\d-\d\d-\d\d", text)) == {"2026-07-28"}


@KINDS
def test_the_file_for_each_program_is_named_in_the_guide(kind: type[Balancer]) -> None:
    guide = (ROOT / "docs" / "deploying.md").read_text("utf-8")

    assert str(kind.shipped.relative_to(ROOT)) in guide


def test_the_shipped_settings_are_those_that_the_files_are_made_for() -> None:
    settings = load_settings(ROOT / "config.toml", environ={})

    assert settings.execution.keep_alive_s == DEFAULTS.execution.keep_alive_s
    assert settings.server.keep_alive_s == DEFAULTS.server.keep_alive_s


SECRETS: Final = {"admin-key", "admin-keys.toml", "keys", "valkey-password", "valkey.acl"}


def make_secrets(folder: Path) -> str:
    done = subprocess.run(
        ["sh", str(DEPLOY / "secrets.sh"), str(folder)], capture_output=True, text=True, check=True
    )
    return done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_secrets_are_made_once_and_what_is_missing_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    first = contents(folder)
    assert set(first) == SECRETS
    assert folder.stat().st_mode & 0o077 == 0

    assert make_secrets(folder) == ""
    assert contents(folder) == first

    (folder / "keys").unlink()
    make_secrets(folder)
    second = contents(folder)
    assert second["keys"] != first["keys"]
    assert second["valkey.acl"] == first["valkey.acl"]

    (folder / "valkey-password").unlink()
    make_secrets(folder)
    assert contents(folder)["valkey.acl"] != first["valkey.acl"], "it is of the new password"


def test_the_server_takes_the_keys_that_are_made(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    environ = {"MCP__SECRETS__KEYS_FILE": str(tmp_path / "keys")}

    assert len(load_settings(environ=environ).secrets.keys) == 1


def test_the_key_of_prometheus_is_that_of_an_administrator(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    keys = ApiKeys(all_api_keys((), tmp_path / "admin-keys.toml", ()))

    key = (tmp_path / "admin-key").read_bytes()
    assert keys.check(key, time.time()).subject == "prometheus"
    (tmp_path / "admin-key").unlink()
    make_secrets(tmp_path)
    with pytest.raises(Refused):
        keys.check((tmp_path / "admin-key").read_bytes(), time.time())
