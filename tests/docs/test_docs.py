"""The documentation says everything that the code has, and nothing that it has not."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.auth import login
from app.cli.exits import Exit
from app.configuration import ConfigurationError, load_settings
from app.content import BLOCKS
from app.execution import asking, execution
from app.execution.execution import Outcome
from app.execution.processes import confine, handle
from app.http import disconnect, landing
from app.methods.record import _OUTCOMES
from app.protocol import headers, jsonrpc, trace_context
from app.protocol.errors import ProtocolError
from app.registry import explain, loader, schemas
from app.settings import Settings, tracing
from app.state import memory
from app.stdio import channel
from app.stdio.credential import ACCESS_TOKEN, API_KEY
from app.toolkit import handles
from tests.docs import reference
from tests.docs.markdown import DOCS, ROOT, anchors, blocks, links, section, table_rows
from tests.http.test_processes_hostile import FAULTS
from tests.support.client import McpClient

OPERATIONS = DOCS / "operations.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "tools" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


# -- configuration ------------------------------------------------------------


def test_the_tables_of_settings_and_options_are_those_of_the_code() -> None:
    text = reference.PAGE.read_text("utf-8")

    assert text == reference.filled(text), "run `python -m tests.docs.reference`"


def test_every_section_and_every_command_has_its_table() -> None:
    assert sorted(reference.places(reference.PAGE.read_text("utf-8"))) == sorted(reference.tables())


def test_every_section_of_the_format_is_explained() -> None:
    text = reference.PAGE.read_text("utf-8")

    for name in Settings.model_fields:
        assert f"[{name}" in text, name


def test_every_option_of_every_command_is_named_in_the_part_about_it() -> None:
    for name, parameters in reference.commands().items():
        text = section(reference.PAGE, f"### {name}")
        for parameter in parameters:
            names = [*parameter.opts, *parameter.secondary_opts]
            shown = [parameter.name.upper()] if parameter.param_type_name == "argument" else names
            assert [each for each in shown if f"`{each}`" not in text] == [], name


def test_what_a_client_is_told_to_start_can_be_started() -> None:
    options = {name for each in reference.commands()["stdio"] for name in each.opts}
    told = [
        server
        for page in (ROOT / "README.md", reference.PAGE)
        for block in blocks(page, "json")
        for server in json.loads(block.text).get("mcpServers", {}).values()
    ]

    assert len(told) == 2
    for server in told:
        assert Path(server["command"]).name == "mcp-tool-server"
        command, *arguments = server["args"]
        assert command == "stdio"
        assert set(arguments[::2]) <= options
        assert all(Path(argument).is_absolute() for argument in arguments[1::2])
        assert set(server.get("env", {})) <= {API_KEY, ACCESS_TOKEN}


def test_the_shipped_configuration_shows_every_key() -> None:
    text = (ROOT / "config.toml").read_text("utf-8")

    missing = [
        f"[{name}] {key}"
        for name, model in reference.sections().items()
        for key in model.model_fields
        if not re.search(rf"^(# )?{key} = ", text, re.MULTILINE)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(page, number, id=f"{page.name}-{number}")
        for page in PAGES
        if page.is_file()
        for number, _ in enumerate(blocks(page, "toml"))
    ],
)
def test_a_configuration_that_is_shown_can_be_used(page: Path, number: int, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(list(blocks(page, "toml"))[number].text, "utf-8")

    load_settings(file, environ={})


def test_a_misspelt_variable_is_explained_as_shown() -> None:
    command, _, shown = next(blocks(reference.PAGE, "console")).text.partition("\n")
    found = re.search(r"(MCP__\w+)=(\S+)", command)
    assert found

    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ={found[1]: found[2]})

    source, _, message = shown.partition(": error: ")
    (problem,) = caught.value.problems
    assert problem.source == source
    assert str(problem).startswith(f"{source}: {message.strip().removesuffix(' ...')}")


# -- operations ---------------------------------------------------------------


def test_every_exit_code_is_explained() -> None:
    rows = table_rows(section(OPERATIONS, "## Exit codes"))

    assert [(row[0], row[1]) for row in rows] == [(str(code.value), code.name) for code in Exit]


def _errors(base: type[ProtocolError] = ProtocolError) -> Iterator[type[ProtocolError]]:
    for each in base.__subclasses__():
        if hasattr(each, "code"):
            yield each
        yield from _errors(each)


def test_every_refusal_is_explained_with_its_status_and_code() -> None:
    rows = table_rows(section(OPERATIONS, "## What each refusal means"))
    explained = {(row[2], row[0], row[1]) for row in rows}

    expected = {(each.__name__, str(each.http_status), str(each.code)) for each in _errors()}
    assert explained == expected


def test_the_table_of_faults_is_the_one_that_is_tested() -> None:
    rows = {
        row[0]: row[1:] for row in table_rows(section(OPERATIONS, "### What a harmful tool costs"))
    }

    before = ""
    for name, _, _, text, _, logged, _ in FAULTS:
        seen, log = rows[name]
        if found := re.match(r"`([^.`]+)", seen):
            before = found[1]
            said = text.replace("\\", "").replace(r"(error", "")
            assert before.strip() in said or name == "a type that demands more", name
        elif seen == "the same":
            assert before.strip() in text, name
        if logged is not None:
            assert all(f"`{word}`" in log for word in logged if word not in (None, "", "frame")), (
                name
            )


_LEVELS = {"debug", "info", "warning", "error", "exception"}


def _events() -> dict[str, set[str]]:
    """Every event that the code writes to the log, with the names of its fields."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            first = node.args[0]
            if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
                continue
            if _writes_a_line(node.func):
                names = {keyword.arg for keyword in node.keywords if keyword.arg}
                if getattr(node.func, "attr", "") == "exception":
                    names.add("exc_info")
                found.setdefault(first.value, set()).update(names)
    return found


def _writes_a_line(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id="log"), attr=level):
            return level in _LEVELS
        case ast.Name(id="write" | "EventLog"):
            return True
    return False


def test_every_log_event_is_explained_with_its_fields() -> None:
    text = section(OPERATIONS, "### Other events")
    explained = {row[0].strip("`"): row[3] for row in table_rows(text)}
    events = _events()

    assert set(explained) == set(events) - {"request"}
    for event, fields in events.items():
        shown = {"traceback" if name == "exc_info" else f"`{name}`" for name in fields}
        if event not in ("request", "log"):  # those of a library are as they come
            assert [name for name in shown if name not in explained[event]] == [], event


def _request_fields() -> set[str]:
    """The fields of the line of a request, as the code puts them in."""
    tree = ast.parse((ROOT / "app/methods/record.py").read_text("utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys):
                texts = (key.value for key in keys if isinstance(key, ast.Constant))
                found |= {text for text in texts if isinstance(text, str)}
            case ast.Subscript(value=ast.Name(id="fields"), slice=ast.Constant(value=str() as key)):
                found.add(key)
    return found


def test_every_field_and_outcome_of_a_request_is_explained() -> None:
    rows = table_rows(section(OPERATIONS, "### The line of a request"))
    explained = {row[0].strip("`") for row in rows}

    outcomes = {value for name, value in vars(Outcome).items() if name.isupper()} | {
        "protocol_error",
        *_OUTCOMES.values(),
    }
    assert explained == _request_fields() | outcomes


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (jsonrpc.MAX_DEPTH, "{} levels"),
        (int(disconnect.SLOW_READER_S), "{} s"),
        (int(channel.SLOW_READER_S), "of `stdio` that takes nothing | {} s"),
        (channel.MAX_BACKLOG_BYTES >> 20, "of `stdio` | {} MiB"),
        (execution.MAX_PENDING, "| {} |"),
        (execution.BURST, "{} at once"),
        (int(1 / execution.INTERVAL_S), "then {} a second"),
        (headers.MAX_MIRRORED_BYTES // 1024, "{} KiB | left out"),
        (explain.MAX_ERRORS, "| {} |"),
        (asking.MAX_ROUNDS, "asks | {} |"),
        (asking.MAX_STATE_CHARACTERS // 1024, "`requestState` | {} KiB"),
        (trace_context.MAX_PARENT_CHARACTERS, "{} characters each, 32 members"),
        (trace_context.MAX_STATE_MEMBERS, "512 characters each, {} members"),
        (trace_context.MAX_BAGGAGE_CHARACTERS >> 10, "{} KiB, 256 characters a value"),
        (trace_context.MAX_BAGGAGE_VALUE_CHARACTERS, "{} characters a value"),
        (tracing.MAX_BAGGAGE_KEYS, "a value, {} keys"),
        (handles.MAX_VALUE_BYTES // 1024, "{} KiB, 30 days"),
        (landing.MAX_FORM_BYTES // 1024, "page | {} KiB | 413"),
        (landing.LOGIN_S, "fill it in | {} s"),
        (landing.SESSION_S, "600 s, {} s"),
        (login.AT_ONCE, "| {} at once, 64 waiting"),
        (login.WAITING, "16 at once, {} waiting"),
        (memory.MAX_ENTRIES // 1000, "in memory | {},000 |"),
        (confine.MAX_STARTS, "| {} | killed"),
        (handle.MAX_LINES, "{} lines"),
    ],
)
def test_limits_that_cannot_be_configured_are_as_written(value: int, shown: str) -> None:
    assert shown.format(value) in section(OPERATIONS, "## Limits")


def test_limits_that_can_be_configured_are_named() -> None:
    text = section(OPERATIONS, "## Limits")

    for name, keys in {
        "server": ["max_body_bytes", "max_header_bytes", "request_timeout_s", "keep_alive_s"],
        "execution": [
            "ask_ttl_s",
            *("threads", "max_abandoned_threads", "timeout_s", "max_result_bytes"),
            *("processes", "process_memory_bytes", "process_cpu_s", "process_output_bytes"),
        ],
        "limits": list(Settings().limits.model_dump()),
    }.items():
        for key in keys:
            assert f"`[{name}] {key}`" in text, key


# -- writing tools ------------------------------------------------------------


def test_what_a_tool_can_return_and_take_is_named() -> None:
    text = (DOCS / "writing-tools.md").read_text("utf-8")

    for block in BLOCKS:
        assert f"| `{block.__name__}` |" in text, block
    for dialect in schemas.DIALECTS:
        assert (re.search(r"draft-0\d|20\d\d-\d\d", dialect) or [""])[0] in text, dialect
    assert f"{schemas.MAX_SCHEMA_DEPTH} levels" in text
    assert f"{schemas.MAX_SUBSCHEMAS:,} parts" in text
    assert f"{loader.MAX_SOURCE_BYTES >> 20} MiB" in text


# -- what the protocol has ----------------------------------------------------


def test_every_method_of_the_revision_has_a_row_that_is_true(client: McpClient) -> None:
    from mcp_types.methods import CLIENT_REQUESTS  # noqa: PLC0415  # slow to import

    rows = table_rows(section(DOCS / "supported.md", "## Methods"))
    shown = {row[0].strip("`"): row[1] for row in rows}
    methods = {method for method, version in CLIENT_REQUESTS if version == "2026-07-28"}

    assert set(shown) == methods
    for method in methods:
        # Whatever each of them needs; what else comes with it is ignored.
        params = {"name": "x", "uri": "x", "notifications": {}}
        reply = client.ask(method, params, {"Mcp-Name": "x"})
        assert (shown[method] == "✓") is (reply.code != -32601), method


# -- all pages ----------------------------------------------------------------


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize(
    "record",
    [pytest.param(path, id=path.stem) for path in sorted((DOCS / "decisions").glob("[0-9]*.md"))],
)
def test_a_decision_says_why_what_for_and_until_when(record: Path) -> None:
    headings = re.findall(r"^## (.+)$", record.read_text("utf-8"), re.MULTILINE)

    assert headings == ["Context", "Decision", "What it is not for", "What would change our mind"]
    assert record.name in (DOCS / "decisions" / "README.md").read_text("utf-8")


def test_the_modules_that_the_architecture_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")

    for path in set(re.findall(r"`(app/[\w/]+(?:\.py|/))`", text)):
        assert (ROOT / path).exists(), path
    packages = {path.name for path in (ROOT / "app").iterdir() if (path / "__init__.py").is_file()}
    assert [name for name in packages if f"`app/{name}/`" not in text] == []
