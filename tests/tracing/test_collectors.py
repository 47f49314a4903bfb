"""What the settings say, and collectors that are slow, down, or not wanted."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.cli.exits import Exit
from app.configuration import ConfigurationError, load_settings
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.collector import Collector
from tests.support.server import ROOT, ServerProcess, clean_environment
from tests.support.stores import free_port
from tests.support.waiting import eventually
from tests.tracing.conftest import TOOLS, TRACING, Trace, config

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "NO_PROXY": "*"}


@contextmanager
def serving(tracing: dict[str, Any], **env: str) -> Iterator[ServerProcess]:
    sections = config(tracing=TRACING | tracing)
    with ServerProcess(TOOLS, sections, env=SOON | env) as server:
        yield server


# -- what is set -----------------------------------------------------------------


def test_the_settings_go_before_the_variables(collector: Collector) -> None:
    caller = Trace()
    tracing = {"endpoint": collector.url, "service_name": "ours"}
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_SERVICE_NAME": "theirs",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.version=other",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=for-the-collector",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    with serving(tracing, **variables) as server:
        caller.call(server.client, "take")
        span = collector.wait(caller.id, "tools/call take")["tools/call take"]

    resource = dict(span.resource)
    assert len(resource.pop("service.instance.id")) == 36
    assert resource.pop("process.pid") == server.pid
    assert {key: value for key, value in resource.items() if not key.startswith("telemetry.")} == {
        "service.name": "ours",
        "service.version": "other",
        "deployment.environment.name": "test",
    }
    assert collector.paths[-1] == "/v1/traces"
    assert collector.headers[-1]["api-key"] == "for-the-collector"
    assert collector.headers[-1]["content-encoding"] == "gzip"


def test_the_server_says_who_it_is_where_nothing_does(
    client: McpClient, server: ServerProcess, collector: Collector, caller: Trace
) -> None:
    caller.call(client, "take")

    resource = collector.wait(caller.id, "tools/call take")["tools/call take"].resource
    assert resource["service.name"] == "traced"
    assert resource["service.version"] == "0.1.0"
    assert resource["process.pid"] == server.pid


@rows(
    "tracing, variables, sampled, unsampled",
    ("nothing that begins here", {"sample_ratio": 0.0}, {}, ["asked"], ["alone", "refused"]),
    (
        "whatever callers say",
        {},
        {"OTEL_TRACES_SAMPLER": "always_on"},
        ["asked", "alone", "refused"],
        [],
    ),
    ("nothing at all", {}, {"OTEL_SDK_DISABLED": "true"}, [], ["asked", "alone", "refused"]),
)
def test_the_sampler_decides_where_no_caller_has(
    tracing: dict[str, Any], variables: dict[str, str], sampled: list[str], unsampled: list[str]
) -> None:
    about = {"asked": Trace(), "refused": Trace(flags="00")}
    with Collector() as own:
        with serving({"endpoint": own.url, **tracing}, **variables) as server:
            for id, trace in about.items():
                trace.call(server.client, "take", id=id)
            server.client.call("take", {}, id="alone")
        # Its end sends what is left.
        ids = [span.attributes.get("jsonrpc.request.id") for span in own.spans()]

    assert sorted(filter(None, ids)) == sorted(sampled)
    assert not set(ids) & set(unsampled)


@pytest.mark.parametrize(
    ("tracing", "problem"),
    [
        ({"endpoint": "collector:4317"}, "must be an http:// or https:// URL"),
        ({"endpoint": "http://user:secret@collector"}, "without user, query or fragment"),
        ({"endpoint": "http://collector:port"}, "must be an http:// or https:// URL"),
        ({"endpoint": "http://collector/?key=secret"}, "without user, query or fragment"),
        ({"sample_ratio": 1.5}, "less than or equal to 1"),
        ({"baggage": ["a b"]}, "must be at most 32 keys of W3C Baggage"),
        ({"baggage": [f"k{number}" for number in range(33)]}, "must be at most 32 keys"),
        ({"service_name": ""}, "at least 1 character"),
    ],
)
def test_what_cannot_be_right_is_refused(
    tracing: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in tracing.items()]
    file.write_text("\n".join(["[tracing]", *lines]))
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, environ={})

    (found,) = caught.value.problems
    assert problem in str(found)
    assert "secret" not in str(found)


# -- the extra ---------------------------------------------------------------------

BLOCKED = """
import importlib.abc, runpy, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
sys.argv[0] = "mcp-tool-server"
runpy.run_module("app", run_name="__main__", alter_sys=False)
"""


def _without_extra(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *args, "--tools", str(TOOLS)],
        cwd=ROOT,
        env=clean_environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@rows(
    "command, code",
    ("serve", ["serve", "--port", "0"], Exit.CONFIGURATION),
    ("stdio", ["stdio"], Exit.CONFIGURATION),
    ("check", ["check"], Exit.PROBLEMS),
)
def test_without_the_extra_tracing_is_refused_with_what_to_do(
    command: list[str], code: Exit
) -> None:
    ended = _without_extra(*command, MCP__TRACING__ENABLED="true")

    assert ended.returncode == code
    assert "tracing.enabled" in ended.stderr
    assert 'pip install "mcp-tool-server[telemetry]"' in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_the_extra_and_without_tracing_all_is_well() -> None:
    assert _without_extra("check").returncode == 0


def test_what_makes_and_sends_spans_is_not_loaded_where_tracing_is_off() -> None:
    code = (
        "import sys, app.cli, app.server, app.execution.processes.template\n"
        "names = ('opentelemetry.sdk.trace', 'opentelemetry.exporter')\n"
        "found = [n for n in sys.modules if n.startswith(names)]\n"
        "sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# -- collectors that fail -------------------------------------------------------------


def test_a_collector_that_is_down_costs_one_line_and_no_call() -> None:
    port = free_port()
    with serving({"endpoint": f"http://127.0.0.1:{port}"}, OTEL_EXPORTER_OTLP_TIMEOUT="0.3") as it:
        assert Trace().call(it.client, "take").text == "0"
        failed = it.wait_for_log(lambda log: log.get("event") == "spans_not_exported")
        with Collector(port) as late:
            caller = Trace()
            caller.call(it.client, "take")
            late.wait(caller.id, "tools/call take")
            again = it.wait_for_log(lambda log: log.get("event") == "spans_exported_again")

    assert failed["problem"]
    assert again["lost"] >= 1


def test_a_collector_that_refuses_again_and_again_is_told_of_once() -> None:
    with Collector() as own:
        own.fault = lambda: 401
        with serving({"endpoint": own.url}) as server:
            for attempt in range(1, 4):
                Trace().call(server.client, "take")
                eventually(lambda: len(own.paths) >= attempt, "another attempt")  # noqa: B023
            own.fault = lambda: None
            Trace().call(server.client, "take")
            again = server.wait_for_log(lambda log: log.get("event") == "spans_exported_again")
            (line,) = server.logs("spans_not_exported")
            assert server.logs("log") == []

    assert "401" in line["problem"]
    assert again["lost"] >= 3


def test_a_collector_that_hangs_costs_no_call_and_not_the_end() -> None:
    with Collector() as own:
        asked = threading.Event()

        def hang() -> None:
            asked.set()
            own.ended.wait(60)

        own.fault = hang
        variables = {"OTEL_BSP_MAX_QUEUE_SIZE": "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
        with serving({"endpoint": own.url}, **variables) as server:
            Trace().call(server.client, "take")
            assert asked.wait(10)
            with server.client.connect() as connection:
                for _ in range(40):  # more than there is room for
                    assert server.client.call("take", {}, connection=connection).text == "0"
            assert len(server.logs("tracing_problem")) == 1
            server.terminate()
            assert server.wait(10) == 0
        assert server.logs("spans_left_behind")


def test_the_end_sends_what_is_left(collector: Collector) -> None:
    caller = Trace()
    late = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    with serving({"endpoint": collector.url}, **late) as server:
        caller.call(server.client, "take")
        assert collector.spans(caller.id) == []

    assert collector.wait(caller.id, "tools/call take", "run take", timeout_s=1)
