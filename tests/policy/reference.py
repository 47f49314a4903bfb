"""Who may do what, said once more as plainly as possible; slow, and sharing no code with the rules.

Where the product compares sorted, compiled and merged things, this collects what lacks.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from app.policy import Own
from app.principal import Grants
from app.settings.auth import AuthSettings
from app.settings.policies import Conditions, PolicySettings, Requirement

WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEK_MINUTES = 7 * 24 * 60
WIRE = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


def answer(
    auth: AuthSettings,
    rules: Sequence[PolicySettings],
    tool: str,
    annotations: Mapping[str, Any],
    *,
    own: Own,
    grants: Grants,
    now: float,
) -> tuple[bool, bool, tuple[str, ...]]:
    """Visible, callable, and the scopes of a challenge."""
    deciding = [rule for rule in rules if is_about(rule, tool, annotations)][:1]
    if not deciding and (auth.default or ("deny" if rules else "allow")) == "deny":
        return False, False, ()
    rule = deciding[0] if deciding else PolicySettings(tools=("*",))
    lacks = lacking(auth, rule.requires, grants)
    lacks |= lacking(
        auth,
        Requirement(scopes=tuple(own.scopes), roles=tuple(own.roles), clearance=own.clearance),
        grants,
    )
    for approval in [*rule.required_approvals, *own.approvals]:
        if approval not in grants.approvals:
            lacks.add("approval")
    if not clock_is_inside(rule.conditions, now):
        lacks.add("time")
    scopes = {*rule.requires.scopes, *own.scopes}
    if rule.any:
        ways = [(lacking(auth, way, grants), way) for way in rule.any]
        good = [way for lack, way in ways if not lack]
        better_scopes = [way for lack, way in ways if lack == {"scope"}]
        if good or better_scopes:
            lacks |= set() if good else {"scope"}
            scopes |= set((good or better_scopes)[0].scopes)
        else:
            lacks.add("alternative")
    if not lacks:
        return True, True, ()
    if rule.otherwise == "challenge" or (rule.otherwise is None and lacks == {"scope"}):
        return True, False, tuple(sorted(scopes))
    return False, False, ()


def lacking(auth: AuthSettings, requirement: Requirement, grants: Grants) -> set[str]:
    lacks = set()
    held = set(grants.scopes)
    for _ in range(len(auth.scope_hierarchy) + 1):
        for broad, narrow in auth.scope_hierarchy.items():
            if broad in held:
                held |= set(narrow)
    if any(scope not in held for scope in requirement.scopes):
        lacks.add("scope")
    if requirement.roles and not any(role in grants.roles for role in requirement.roles):
        lacks.add("role")
    if requirement.clearance is not None:
        enough = auth.clearances[auth.clearances.index(requirement.clearance) :]
        if grants.clearance not in enough:
            lacks.add("clearance")
    if requirement.tenants and grants.tenant not in requirement.tenants:
        lacks.add("tenant")
    return lacks


def is_about(rule: PolicySettings, tool: str, annotations: Mapping[str, Any]) -> bool:
    if rule.tools and not any(is_like(pattern, tool) for pattern in rule.tools):
        return False
    said = {WIRE.get(key, key): value for key, value in annotations.items()}
    said.setdefault("readOnlyHint", False)
    said.setdefault("destructiveHint", said["readOnlyHint"] is not True)
    said.setdefault("idempotentHint", False)
    said.setdefault("openWorldHint", True)
    for key, wanted in rule.annotations.items():
        value = said.get(WIRE.get(key, key))
        if isinstance(wanted, str):
            if not (isinstance(value, str) and is_like(wanted, value)):
                return False
        elif type(value) is not type(wanted) or value != wanted:
            return False
    return True


def is_like(pattern: str, text: str) -> bool:
    """Tries every text for every star."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(is_like(pattern[1:], text[skip:]) for skip in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and is_like(pattern[1:], text[1:])


def clock_is_inside(conditions: Conditions, now: float) -> bool:
    """Looks up the minute that a clock shows among all minutes of a week that are inside."""
    clock = datetime.fromtimestamp(int(now), ZoneInfo(conditions.timezone))
    minute = clock.weekday() * 24 * 60 + clock.hour * 60 + clock.minute
    return minute in minutes_inside(conditions.time, conditions.days)


@cache
def minutes_inside(window: str | None, days: tuple[str, ...]) -> set[int]:
    begin, length = 0, 24 * 60
    if window is not None:
        first, last = (int(text[:2]) * 60 + int(text[3:]) for text in window.split("-"))
        begin, length = first, (last - first) % (24 * 60) or 24 * 60
    return {
        (day * 24 * 60 + begin + minute) % WEEK_MINUTES
        for day in range(7)
        if not days or any(WEEK[day] in spelled(item) for item in days)
        for minute in range(length)
    }


def spelled(item: str) -> list[str]:
    if "-" not in item:
        return [item]
    first, last = item.split("-")
    twice = WEEK + WEEK
    from_first = twice[twice.index(first) :]
    return from_first[: from_first.index(last) + 1]
