"""The session of `docs/authorization.md`, run as printed, and what the page promises."""

import re
import socket
from pathlib import Path

import pytest

from app.auth import tokens
from app.auth.challenge import Challenge
from app.auth.discovery import metadata_urls
from app.auth.metadata import metadata_paths, resource_metadata
from app.auth.remembered import MAX_BYTES, MAX_TOKENS
from app.configuration import load_settings
from app.policy.windows import window_of
from app.principal import Principal
from app.registry.catalog import MAX_VIEWS
from app.settings import IssuerSettings, PolicySettings, Requirement
from app.settings.auth import ClaimSettings
from app.settings.policies import Conditions
from tests.docs.markdown import DOCS, blocks, section, squeezed, table_rows
from tests.docs.session import can_run, run_as_printed, steps

PAGE = DOCS / "authorization.md"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.skipif(not can_run, reason="needs bash and curl")
@pytest.mark.timeout(180)
def test_the_session_works_as_printed(clone: Path) -> None:
    port = str(_free_port())

    def at_hand(script: str) -> str:
        script = script.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        return script.replace(" serve ", f" serve --port {port} ")

    run_as_printed(PAGE, clone, at_hand)


def test_the_session_shows_what_a_reader_looks_for() -> None:
    session = "\n".join(block.text for block, _ in steps(PAGE))

    for part in ("keys create", "[[policies]]", "tools/list", "tools/call", "explain", "listen"):
        assert part in session, part


_TABLES = {"requires", "conditions"}


def test_every_key_of_a_rule_has_a_row() -> None:
    shown = " ".join(row[0] for row in table_rows(section(PAGE, "## Rules")))

    keys = [f"`{key}`" for key in PolicySettings.model_fields if key not in _TABLES]
    keys += [f"requires.{key}`" for key in Requirement.model_fields]
    keys += [f".{key}`" for key in Conditions.model_fields]
    assert [key for key in keys if key not in shown] == []


def test_claims_are_read_from_where_the_page_says() -> None:
    rows = table_rows(section(PAGE, "### Claims"))

    defaults = ClaimSettings().model_dump()
    shown = {row[0].strip("`"): tuple(re.findall(r"`([^`]+)`", row[1])) for row in rows}
    assert shown == {
        key: (value,) if isinstance(value, str) else value for key, value in defaults.items()
    }


def test_what_a_tool_learns_is_all_that_a_principal_has() -> None:
    rows = table_rows(section(PAGE, "## What a tool learns of its caller"))

    shown = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert shown == set(Principal.__dataclass_fields__) - {"grants", "found"}


# Noon before each change in Berlin, and hours that a window is open in the 24 hours from then on.
_SPRING, _AUTUMN = 1774695600, 1792839600
_HOURS = {
    "02:15-02:45": (0, 1),
    "01:30-02:30": (0.5, 1.5),
    "02:30-03:30": (0.5, 1.5),
    "22:00-06:00": (7, 9),
}


def test_windows_open_as_the_page_says_when_clocks_are_changed() -> None:
    shown = [row[0].strip("`") for row in table_rows(section(PAGE, "### Time"))]

    assert shown == list(_HOURS)
    for time, hours in _HOURS.items():
        assert tuple(_open_hours(time, noon) for noon in (_SPRING, _AUTUMN)) == hours, time


def _open_hours(time: str, since: float) -> float:
    window = window_of(Conditions(time=time, timezone="Europe/Berlin"))
    assert window is not None
    hours, now, end = 0.0, since, since + 24 * 3600
    while now < end:
        until = min(window.next_edge(now), end)
        hours += (until - now) / 3600 if window.is_open(now) else 0
        now = until
    return hours


@pytest.mark.parametrize(
    ("heading", "shown"),
    [
        ("## What it costs", f"kept encoded | {MAX_VIEWS} |"),
        ("## What it costs", f"{MAX_TOKENS:,}, or as many as have {MAX_BYTES >> 20} MiB"),
        ("### What is checked of a token", f"{tokens.MAX_TOKEN_BYTES >> 10} KiB"),
    ],
)
def test_bounds_are_as_written(heading: str, shown: str) -> None:
    assert shown in section(PAGE, heading)


def test_an_issuer_is_asked_and_believed_as_the_page_says() -> None:
    issuer = IssuerSettings(issuer="https://login.example.com/realms/main")
    text = PAGE.read_text("utf-8")

    for key, shown in {
        "leeway_s": (30.0, "`leeway_s` (30 s)"),
        "refresh_s": (3600.0, "`refresh_s` (an hour)"),
        "cooldown_s": (30.0, "`cooldown_s` (30 s)"),
        "grace_s": (86_400.0, "`grace_s` (a day)"),
        "timeout_s": (5.0, "`timeout_s` (5 s)"),
        "algorithms": (("RS256", "PS256", "ES256", "EdDSA"), "RS256, PS256, ES256 and EdDSA"),
        "token_types": (("at+jwt", "JWT"), "`at+jwt` or `JWT`"),
    }.items():
        assert getattr(issuer, key) == shown[0], key
        assert shown[1] in text, key
    for url in metadata_urls(issuer.issuer):
        assert f"`{url.removeprefix('https://login.example.com')}`" in text, url


def test_the_first_example_of_an_issuer_is_told_to_clients_as_shown(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(next(blocks(PAGE, "toml")).text, "utf-8")
    settings = load_settings(file, environ={})
    refusal, document = blocks(PAGE, "http")

    (_, header), *_ = Challenge(settings).unauthorized("").headers
    assert squeezed(header.decode()) == squeezed(refusal.text.partition("WWW-Authenticate:")[2])
    assert squeezed((resource_metadata(settings) or b"").decode()) == squeezed(
        document.text.partition("\n\n")[2]
    )
    assert document.text.split()[1] in metadata_paths(settings)
