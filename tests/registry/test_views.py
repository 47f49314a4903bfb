"""What callers find in a snapshot: shared, bounded, and told how long it holds."""

import tracemalloc
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from app.policy.limits import NO_LIMITS
from app.policy.policy import Policy
from app.policy.rollouts import Switch
from app.principal import Principal
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.catalog import MAX_VIEWS, Catalog
from app.registry.hooks import NO_HOOKS
from app.registry.tool import compile_tool
from app.settings import AuthSettings, PolicySettings, Settings
from app.toolkit import ToolSpec
from tests.support.cases import rows

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
AT_WORK = {"time": "09:00-17:00", "timezone": "Europe/Berlin"}


async def _nothing() -> None:
    """Do nothing."""


def catalog(
    names: Sequence[str],
    rules: Sequence[Mapping[str, Any]] = (),
    *,
    auth: Mapping[str, Any] | None = None,
    anonymous: bool = True,
    ttl_ms: int = 0,
    page_size: int = 250,
    switches: Mapping[str, Switch] = MappingProxyType({}),
) -> Catalog:
    """A snapshot of tools that do nothing."""
    policy = Policy(
        AuthSettings.model_validate(auth or {}), [PolicySettings.model_validate(r) for r in rules]
    )
    tools = [
        compile_tool(
            ToolSpec(function=_nothing, name=name), name=name, source=None, settings=Settings()
        )
        for name in names
    ]
    return Catalog(
        tools,
        policy=policy,
        demands={tool.name: policy.demand(tool.name, {}, tool.own) for tool in tools},
        limits=NO_LIMITS,
        hooks=dict.fromkeys(names, NO_HOOKS),
        messages=ServerMessages({"name": "test", "version": "1"}),
        keys=KeyRing([bytes(32)]),
        page_size=page_size,
        ttl_ms=ttl_ms,
        anonymous=anonymous,
        switches=switches,
    )


def listed(page: bytes) -> list[str]:
    """The names on a page."""
    return [tool["name"] for tool in orjson.loads(page)["tools"]]


def test_callers_with_other_grants_and_the_same_tools_share_their_pages() -> None:
    snapshot = catalog(["a", "b"], [{"tools": ["a"], "requires": {"roles": ["x"]}}])

    one = snapshot.view(Principal(issuer="x", roles=frozenset({"y"}), tenant="one"), NOON)
    two = snapshot.view(Principal(issuer="x", roles=frozenset({"z"}), tenant="two"), NOON)

    assert one is two
    assert one.page(None, NOON) is two.page(None, NOON)


def test_the_list_and_the_offers_are_the_same_tools() -> None:
    rules: list[Any] = [{"tools": ["a*"], "requires": {"roles": ["x"]}}, {"tools": ["b"]}]
    snapshot = catalog(["a1", "a2", "b", "c"], rules)

    for roles, names in (({"x"}, ["a1", "a2", "b"]), ({"y"}, ["b"])):
        view = snapshot.view(Principal(issuer="x", roles=frozenset(roles)), NOON)
        assert listed(view.page(None, NOON)) == list(view.offers) == names


@rows(
    "rules, auth, anonymous, scope",
    ("no rule", [], {}, True, "public"),
    ("a credential is needed", [], {}, False, "private"),
    ("a scope, which is challenged", [{"tools": ["*"], "requires": {"scopes": ["s"]}}], {}, True,
     "public"),
    ("a role, which hides", [{"tools": ["*"], "requires": {"roles": ["r"]}}], {}, True, "private"),
    ("a scope that hides",
     [{"tools": ["*"], "requires": {"scopes": ["s"]}, "otherwise": "hide"}], {}, True, "private"),
    ("nothing for anybody", [], {"default": "deny"}, True, "public"),
    ("only a time", [{"tools": ["*"], "conditions": AT_WORK}], {}, True, "public"),
)  # fmt: skip
def test_a_list_is_public_only_if_everybody_finds_it(
    rules: list[Any], auth: dict[str, Any], anonymous: bool, scope: str
) -> None:
    page = (
        catalog(["a"], rules, auth=auth, anonymous=anonymous)
        .view(Principal(), NOON)
        .page(None, NOON)
    )

    assert orjson.loads(page)["cacheScope"] == scope


def test_a_list_holds_no_longer_than_until_the_next_edge() -> None:
    snapshot = catalog(["a", "b"], [{"tools": ["*"], "conditions": AT_WORK}], ttl_ms=3_600_000)

    def ttl(now: float) -> int:
        view = snapshot.view(Principal(), now)
        page = view.page(None, now)
        return int(orjson.loads(page)["ttlMs"])

    assert ttl(NOON) == 3_600_000
    assert ttl(NOON + 4.5 * 3600) == 1_800_000
    assert ttl(NOON + 5 * 3600 - 0.25) == 250


def test_hours_of_tools_that_a_caller_may_not_see_show_in_nothing() -> None:
    rule = {"tools": ["a"], "requires": {"roles": ["x"]}, "conditions": AT_WORK}
    snapshot = catalog(["a", "b"], [rule, {"tools": ["b"]}], ttl_ms=86_400_000)

    def ttl(role: str) -> int:
        view = snapshot.view(Principal(issuer="x", roles=frozenset({role})), NOON)
        return int(orjson.loads(view.page(None, NOON))["ttlMs"])

    assert ttl("x") == 5 * 3600 * 1000
    assert ttl("y") == 86_400_000


def test_at_an_edge_everybody_is_decided_anew() -> None:
    snapshot = catalog(["a", "b"], [{"tools": ["a"], "conditions": AT_WORK}, {"tools": ["b"]}])
    found = [
        list(snapshot.view(Principal(), NOON + hours * 3600).offers) for hours in (-4, 0, 4.99, 5)
    ]

    assert found == [["b"], ["a", "b"], ["a", "b"], ["b"]]


def test_the_fingerprint_of_a_caller_changes_with_its_own_list_alone() -> None:
    rules: list[Any] = [{"tools": ["a*"], "requires": {"roles": ["x"]}}, {"tools": ["b*"]}]
    before, after = catalog(["a", "b"], rules), catalog(["a", "a2", "b"], rules)

    def fingerprint(snapshot: Catalog, role: str) -> str:
        return snapshot.view(Principal(issuer="x", roles=frozenset({role})), NOON).fingerprint

    assert fingerprint(before, "y") == fingerprint(after, "y")
    assert fingerprint(before, "x") != fingerprint(after, "x")


def test_a_cursor_of_one_caller_shows_another_nothing_that_it_may_not_see() -> None:
    names = [f"a{n}" for n in range(6)]
    snapshot = catalog(
        names, [{"tools": ["a5"], "requires": {"roles": ["x"]}}, {"tools": ["*"]}], page_size=2
    )
    rich = snapshot.view(Principal(issuer="x", roles=frozenset({"x"})), NOON)
    poor = snapshot.view(Principal(), NOON)

    cursor = orjson.loads(rich.page(orjson.loads(rich.page(None, NOON))["nextCursor"], NOON))[
        "nextCursor"
    ]

    assert listed(rich.page(cursor, NOON)) == ["a4", "a5"]
    assert listed(poor.page(cursor, NOON)) == ["a4"]


def test_ten_thousand_callers_cost_the_catalog_next_to_nothing() -> None:
    """What is remembered of a caller lives with its credential; see tests/auth for that."""
    rules = [{"tools": [f"t{n}"], "requires": {"tenants": [f"tenant-{n}"]}} for n in range(20)]
    snapshot = catalog([f"t{n}" for n in range(50)], rules, auth={"default": "allow"})
    callers = [
        Principal(issuer="x", scopes=frozenset({f"scope-{n}"}), tenant=f"tenant-{n % 100}")
        for n in range(10_000)
    ]
    tracemalloc.start()
    for caller in callers:
        snapshot.view(caller, NOON).page(None, NOON)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert used < 2 * 1024 * 1024, used


def test_a_clock_that_goes_back_over_an_edge_is_believed() -> None:
    snapshot = catalog(["a", "b"], [{"tools": ["a"], "conditions": AT_WORK}, {"tools": ["b"]}])
    caller = Principal(issuer="x")

    found = [list(snapshot.view(caller, NOON + hours * 3600).offers) for hours in (0, 5, 4.9)]

    assert found == [["a", "b"], ["b"], ["a", "b"]]


def test_many_different_lists_are_kept_up_to_a_bound() -> None:
    names = [f"t{n}" for n in range(10)]
    rules = [{"tools": [name], "requires": {"roles": [name]}} for name in names]
    snapshot = catalog(names, rules)

    def view(number: int) -> Any:
        roles = frozenset(name for bit, name in enumerate(names) if number >> bit & 1)
        return snapshot.view(Principal(issuer="x", roles=roles), NOON)

    first = view(1)
    assert view(1) is first
    for number in range(2, MAX_VIEWS + 2):
        view(number)

    assert view(1) is not first, "the oldest was forgotten"
    assert list(view(1).offers) == ["t0"], "and is decided alike"


class TestSwitches:
    def test_a_tool_that_is_off_is_there_for_nobody(self) -> None:
        snapshot = catalog(["a", "b"], switches={"a": Switch(enabled=False)})
        assert list(snapshot.tools) == ["b"]
        for caller in (Principal(), Principal(issuer="x", subject="y")):
            assert list(snapshot.view(caller, NOON).offers) == ["b"]
        assert snapshot.fingerprint == catalog(["b"]).fingerprint

    def test_a_share_of_the_callers_has_it_and_the_list_and_the_call_agree(self) -> None:
        switch = Switch(percent=30)
        snapshot = catalog(["a", "b"], switches={"a": switch})
        found = 0
        for number in range(500):
            caller = Principal(issuer="x", subject=f"user-{number}")
            view = snapshot.view(caller, NOON)
            assert listed(view.page(None, NOON)) == list(view.offers)
            assert ("a" in view.offers) == switch.admits("a", caller)
            found += "a" in view.offers
        assert 100 < found < 200

    def test_callers_who_find_the_same_share_it(self) -> None:
        switches = {"a": Switch(percent=50), "hidden": Switch(percent=50)}
        rules: list[Any] = [
            {"tools": ["hidden"], "requires": {"roles": ["r"]}},
            {"tools": ["*"]},
        ]
        snapshot = catalog(["a", "b", "hidden"], rules, switches=switches)
        callers = [Principal(issuer="x", subject=f"user-{number}") for number in range(200)]
        # A tool that the rules hide anyway tells nobody from anybody else.
        assert len({id(snapshot.view(caller, NOON)) for caller in callers}) == 2

    def test_a_switch_of_a_tool_that_is_not_there_is_nothing(self) -> None:
        snapshot = catalog(["a"], switches={"gone": Switch(percent=50)})
        page = snapshot.view(Principal(), NOON).page(None, NOON)
        assert orjson.loads(page)["cacheScope"] == "public"

    @rows(
        "switch, scope",
        ("off", Switch(enabled=False), "public"),
        ("for everybody", Switch(percent=100), "public"),
        ("for nobody", Switch(percent=0), "public"),
        ("a share", Switch(percent=1), "private"),
        ("all but a few", Switch(percent=99), "private"),
        ("a tenant", Switch(tenants=frozenset({"acme"})), "private"),
        ("a tenant and everybody", Switch(percent=100, tenants=frozenset({"acme"})), "public"),
    )
    def test_a_list_that_hangs_on_the_caller_is_private(self, switch: Switch, scope: str) -> None:
        snapshot = catalog(["a", "b"], switches={"a": switch})
        page = snapshot.view(Principal(), NOON).page(None, NOON)
        assert orjson.loads(page)["cacheScope"] == scope

    def test_lists_are_bounded_however_many_callers_are_remembered(self) -> None:
        names = [f"t{n}" for n in range(30)]
        snapshot = catalog(names, switches={name: Switch(percent=50) for name in names})
        callers = [Principal(issuer="x", subject=f"user-{number}") for number in range(1000)]
        tracemalloc.start()
        for caller in callers:
            snapshot.view(caller, NOON).page(None, NOON)
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(snapshot._views) == MAX_VIEWS
        assert used < 10 * 1024 * 1024, used
        # Who comes back after its list had to make room finds the same again.
        again = snapshot.view(callers[0], NOON)
        held_back = [name for name in names if not Switch(percent=50).admits(name, callers[0])]
        assert sorted([*again.offers, *held_back]) == sorted(names)
