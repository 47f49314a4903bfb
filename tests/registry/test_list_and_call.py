"""For random rules, callers and times: a tool is listed if and only if a call of it is known."""

import asyncio
from typing import Any
from unittest.mock import patch

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from app.auth.challenge import Challenge
from app.execution.asking import Desk
from app.execution.caching import ResultCache
from app.execution.course import Courses
from app.execution.endings import Endings
from app.execution.execution import Execution
from app.execution.executor import Executor
from app.execution.idempotency import Claims
from app.execution.processes.pool import Processes
from app.execution.results import ResultEncoder
from app.methods.answers import Reply, Sender
from app.methods.tools import CallTool, ListTools
from app.policy import Own, Policy
from app.policy.limits import NO_LIMITS, Limiter
from app.principal import Grants, Principal
from app.protocol.errors import Forbidden, InvalidParams, Unauthorized
from app.protocol.inbound import Call
from app.protocol.messages import ServerMessages
from app.protocol.schema import LATEST_PROTOCOL_VERSION, RequestMeta
from app.protocol.sealed import KeyRing
from app.registry import catalog as catalogs
from app.registry.catalog import Catalog
from app.registry.hooks import NO_HOOKS
from app.registry.tool import compile_tool
from app.settings import Settings
from app.state.memory import MemoryStore
from app.toolkit import ToolSpec
from tests.policy import test_reference as random
from tests.policy.reference import answer

NAMES = ("f", "finance.pay", "finance.read", "hr.pay")
META = RequestMeta(LATEST_PROTOCOL_VERSION, {}, None, None, None, None, {})


async def _nothing() -> None:
    """Do nothing."""


TOOLS = [
    compile_tool(
        ToolSpec(function=_nothing, name=name), name=name, source=None, settings=Settings()
    )
    for name in NAMES
]


def _principal(grants: Grants) -> Principal:
    return Principal(
        issuer="x" if grants.authenticated else None,
        subject="x",
        scopes=grants.scopes,
        roles=grants.roles,
        clearance=grants.clearance,
        tenant=grants.tenant,
        approvals=grants.approvals,
    )


def _listed(list_tools: ListTools, sender: Sender) -> list[str]:
    """The names on all pages."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        reply = list_tools(Call(1, "tools/list", params, META), sender)
        assert isinstance(reply, Reply)
        page = orjson.loads(reply.result)
        names += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            return names


def _called(call_tool: CallTool, sender: Sender, name: str) -> str:
    """How a call is answered."""
    try:
        answer = call_tool(Call(1, "tools/call", {"name": name}, META), sender)
    except InvalidParams as error:
        return "unknown" if error.message == f"Unknown tool: {name}" else error.message
    except (Forbidden, Unauthorized):
        return "challenged"
    assert isinstance(answer, Execution)
    return "called"


@settings(deadline=None, max_examples=60)
@given(
    random.policies,
    st.lists(random.callers, min_size=2, max_size=6),
    st.lists(random.instants, min_size=1, max_size=3),
    st.lists(random.annotations, min_size=len(NAMES), max_size=len(NAMES)),
)
def test_list_and_call_agree(
    made: random.Made, who: list[Grants], when: list[float], said: list[dict[str, Any]]
) -> None:
    asyncio.run(_agree(made, who, when, dict(zip(NAMES, said, strict=True))))


async def _agree(
    made: random.Made, who: list[Grants], when: list[float], said: dict[str, dict[str, Any]]
) -> None:
    now = when[0]
    policy, server, messages = Policy(*made), Settings(), ServerMessages({"name": "t"})
    snapshot = Catalog(
        TOOLS,
        policy=policy,
        demands={name: policy.demand(name, said[name], Own()) for name in NAMES},
        messages=messages,
        keys=KeyRing([bytes(32)]),
        page_size=2,
        ttl_ms=60_000,
        limits=NO_LIMITS,
        hooks=dict.fromkeys(NAMES, NO_HOOKS),
        anonymous=True,
    )
    encoder = ResultEncoder(messages, max_bytes=10_000)
    desk = Desk(KeyRing([bytes(32)]), MemoryStore(), ask_ttl_s=600)
    endings = Endings(encoder, end=lambda _: None)
    processes = Processes(server.execution, endings, log_level="error")
    executor = Executor(
        server,
        endings,
        desk=desk,
        begin=lambda _: None,
        end=lambda _: None,
        processes=processes,
    )
    courses = Courses(
        executor,
        endings,
        cache=ResultCache(0),
        claims=Claims(MemoryStore(), ttl_s=60),
        limit=10,
    )
    limiter = Limiter(MemoryStore())
    list_tools = ListTools(lambda: snapshot, limiter, clock=lambda: now)
    call_tool = CallTool(
        lambda: snapshot,
        executor,
        encoder,
        courses,
        limiter=limiter,
        desk=desk,
        clock=lambda: now,
        challenge=lambda: Challenge(server),
    )
    callers = [(grants, Sender(_principal(grants))) for grants in who]
    # So few that they are forgotten and made again.
    with patch.object(catalogs, "MAX_VIEWS", 2):
        for now in [*when, *sorted(when)]:
            for grants, sender in callers:
                expected = {
                    name: answer(*made, name, said[name], own=Own(), grants=grants, now=now)
                    for name in NAMES
                }
                listed = _listed(list_tools, sender)
                outcomes = {name: _called(call_tool, sender, name) for name in NAMES}
                assert listed == [name for name in NAMES if expected[name][0]]
                assert listed == [name for name in NAMES if outcomes[name] != "unknown"]
                assert {name for name in NAMES if outcomes[name] == "called"} == {
                    name for name in NAMES if expected[name][1]
                }
    await executor.stop()
