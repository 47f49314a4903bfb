"""``admin``: ask the administrative listener of a running server."""

import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import httpx2
import typer
from rich.markup import escape
from rich.table import Column, Table

from app.auth.api_keys import is_key
from app.cli.exits import Exit
from app.cli.options import (
    ConfigOption,
    JsonOption,
    errors,
    fail,
    load_or_exit,
    out,
    print_error,
    ways_in,
)
from app.settings import is_loopback_host

KEY_VARIABLE: Final = "MCP_ADMIN_KEY"
MAX_KEY_FILE: Final = 4096

admin = typer.Typer(
    name="admin",
    help="Administer a running server, and with it its whole fleet.",
    no_args_is_help=True,
)

UrlOption = Annotated[
    str | None,
    typer.Option(help="Base URL of the administrative listener (default: as configured)"),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(help=f"File with the administrator's key (default: the variable {KEY_VARIABLE})"),
]
TimeoutOption = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer")]
ToolArgument = Annotated[str, typer.Argument(help="Name of the tool, as served")]
ReplicaArgument = Annotated[str, typer.Argument(help="Id of the replica, as `status` shows it")]
IssuerOption = Annotated[str, typer.Option(help="Who made it; api-key: a key of the server's own")]
IdArgument = Annotated[str, typer.Argument(help="`jti` of the token, or id of the API key")]


@admin.command()
def status(
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Show the fleet: who is there, what was decided, and whether all agree."""
    answer = _Server(url, key_file, config, timeout_s).ask("GET", "status")
    if as_json:
        out.print_json(data=answer)
    else:
        _show_status(answer)
    if not answer["agree"] or not answer["one_revision"]:
        raise typer.Exit(Exit.PROBLEMS)


@admin.command()
def tools(
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """List all tools, and for whom they are there."""
    answer = _Server(url, key_file, config, timeout_s).ask("GET", "tools")
    if as_json:
        out.print_json(data=answer)
        return
    table = Table("Tool", "For whom")
    for tool in answer["tools"]:
        for_whom = _for_whom(tool["switch"])
        if not tool["loaded"]:
            for_whom += " (not loaded here)"
        table.add_row(escape(tool["name"]), escape(for_whom))
    out.print(table)


@admin.command()
def enable(
    tool: ToolArgument,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Switch a tool on again, for those who had it before."""
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("PATCH", f"tools/{_step(tool)}/switch", {"enabled": True}), as_json)


@admin.command()
def disable(
    tool: ToolArgument,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Switch a tool off for everybody. Calls that run go on."""
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("PATCH", f"tools/{_step(tool)}/switch", {"enabled": False}), as_json)


@admin.command()
def rollout(
    tool: ToolArgument,
    percent: Annotated[
        int | None, typer.Option(min=0, max=100, help="For so many of a hundred callers")
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="For this tenant besides; may be repeated")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--everybody", help="For everybody: the rollout is over")
    ] = False,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Serve a tool to a share of the callers, or to some tenants. One that is off stays off."""
    if everybody == (percent is not None or bool(tenant)):
        fail("say --percent, --tenant or both; or --everybody alone", Exit.USAGE)
    server = _Server(url, key_file, config, timeout_s)
    path = f"tools/{_step(tool)}/switch"
    # What is not said stays as it is: a rollout must not undo that a tool was switched off.
    _done(server.ask("PATCH", path, {"percent": percent, "tenants": tenant or []}), as_json)


@admin.command()
def reload(
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Let all replicas load settings and tools again."""
    _done(_Server(url, key_file, config, timeout_s).ask("POST", "reload"), as_json)


@admin.command()
def drain(
    replica: ReplicaArgument,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Take a replica out: it says that it is not ready, and serves what still comes."""
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("POST", f"replicas/{_step(replica)}/drain"), as_json)


@admin.command()
def undrain(
    replica: ReplicaArgument,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Take a replica in again."""
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("DELETE", f"replicas/{_step(replica)}/drain"), as_json)


@admin.command()
def revoke(
    id: IdArgument,
    issuer: IssuerOption = "api-key",
    expires_at: Annotated[
        str | None,
        typer.Option(
            help="When it would end, as 2027-01-01T00:00:00Z; default for tokens: 30 days"
        ),
    ] = None,
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Let a token or an API key count no longer; its listeners are ended."""
    body = {"issuer": issuer, "id": id, "expires_at": expires_at}
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("POST", "credentials/revoke", body), as_json)


@admin.command()
def restore(
    id: IdArgument,
    issuer: IssuerOption = "api-key",
    url: UrlOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Take a revocation back."""
    body = {"issuer": issuer, "id": id}
    server = _Server(url, key_file, config, timeout_s)
    _done(server.ask("POST", "credentials/restore", body), as_json)


class _Server:
    """The listener, and the key that it is asked with."""

    def __init__(
        self, url: str | None, key_file: Path | None, config: Path | None, timeout_s: float
    ) -> None:
        self._url = (url or _configured_url(config)).rstrip("/")
        try:
            parts = urllib.parse.urlsplit(self._url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host, parts = None, urllib.parse.urlsplit("")
        if parts.scheme not in ("http", "https") or not host:
            fail("--url must be a URL such as http://127.0.0.1:9000", Exit.USAGE)
        if parts.scheme == "http" and not is_loopback_host(host):
            errors.print(
                "The key travels to another machine without TLS: let that be a network of yours."
            )
        self._key = _key(key_file)
        self._timeout_s = timeout_s

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Its answer; anything else than success ends the process with the reason."""
        try:
            # No proxy of the environment: it would be shown the key.
            with httpx2.Client(timeout=self._timeout_s, trust_env=False) as client:
                response = client.request(
                    method,
                    f"{self._url}/admin/v1/{path}",
                    headers={"authorization": f"Bearer {self._key}"},
                    json=body,
                )
                answer = response.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            self._unreached(str(error) or type(error).__name__)
        except ValueError:
            self._unreached("what answers there is no administrative listener")
        if not isinstance(answer, dict) or not isinstance(answer.get("error", ""), str):
            self._unreached("what answers there is no administrative listener")
        if not response.is_success:
            said = answer.get("error", f"status {response.status_code}")[:1000]
            fail(said, Exit.CREDENTIAL if response.status_code == 401 else Exit.PROBLEMS)
        return answer

    def _unreached(self, reason: str) -> NoReturn:
        fail(f"{self._url}: {reason} (--url asks another address)", Exit.PROBLEMS)


def _configured_url(config: Path | None) -> str:
    settings = load_or_exit(config, {}).admin
    if not settings.port:
        fail("no [admin] port is configured; --url says where to ask", Exit.USAGE)
    host = ways_in(settings.host)[0]
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _key(file: Path | None) -> str:
    if file is None:
        text = os.environ.get(KEY_VARIABLE, "")
        where = f"the variable {KEY_VARIABLE}"
    else:
        where = str(file)
        try:
            with file.open("rb") as opened:
                text = opened.read(MAX_KEY_FILE).decode("utf-8", "replace")
        except OSError as error:
            fail(f"{file}: cannot be read: {error.strerror}", Exit.CREDENTIAL)
    text = text.strip()
    if not text:
        fail(f"a key is needed: in the variable {KEY_VARIABLE}, or --key-file", Exit.CREDENTIAL)
    if not is_key(text.encode("utf-8", "replace")):
        fail(f"{where} holds no key: mts_ID_ and 43 characters", Exit.CREDENTIAL)
    return text


def _step(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _done(answer: Mapping[str, Any], as_json: bool) -> None:
    """Say what was done; exit code 1 if somebody has not done it yet."""
    if as_json:
        out.print_json(data=answer)
    else:
        out.print(f"revision {answer['revision']}", highlight=False)
        if "tool" in answer:
            out.print(f"{escape(answer['tool'])}: {escape(_for_whom(answer['switch']))}")
        if not answer["lasting"]:
            out.print("It ends with this process: [state] keeps nothing beyond it.")
        for member in answer["missing"]:
            print_error(f"{member} has not applied it yet; see `admin status`")
    if not answer["complete"]:
        raise typer.Exit(Exit.PROBLEMS)


def _for_whom(switch: Mapping[str, Any] | None) -> str:
    if switch is None:
        return "everybody"
    percent, tenants = switch["percent"], switch["tenants"]
    parts = [] if percent is None else [f"{percent} %"]
    if tenants:
        parts.append("tenants " + ", ".join(tenants))
    shown = " and ".join(parts) or "everybody"
    return shown if switch["enabled"] else f"off (then {shown})" if parts else "off"


def _show_status(answer: Mapping[str, Any]) -> None:
    member_column = Column("Member", no_wrap=True)  # its first half is what `drain` takes
    table = Table(member_column, "Version", "Settings", "Tools", "Revision", "State")
    for member in answer["fleet"]:
        table.add_row(
            escape(member["member"]),
            escape(member["version"]),
            member["configuration"],
            member["catalog"],
            str(member["revision"]),
            "draining" if member["draining"] else "serving",
        )
    out.print(table)
    out.print(f"revision {answer['revision']}, {answer['revoked']} revoked", highlight=False)
    for name, switch in sorted(answer["switches"].items()):
        out.print(f"{escape(name)}: {escape(_for_whom(switch))}")
    for replica in sorted(answer["drained"]):
        out.print(f"{escape(replica)}: drained since {answer['drained'][replica]}")
    if answer["problem"]:
        print_error(f"the replica that answered cannot follow decisions: {answer['problem']}")
    for problem in answer["disagreements"]:
        print_error(problem)
    if not answer["one_catalog"]:
        out.print("not all replicas serve the same tools (yet)")
