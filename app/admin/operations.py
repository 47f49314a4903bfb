"""What administrators can do, and what they are told: JSON values in, JSON values out."""

import difflib
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from app.admin.bodies import CredentialBody, SwitchBody
from app.auth.api_keys import ISSUER as API_KEY
from app.auth.api_keys import ApiKeys
from app.auth.authenticator import Authenticator
from app.fleet.control import REVOCATION_MARGIN_S, Control
from app.fleet.fleet import Fleet
from app.fleet.keeping import Edit
from app.fleet.members import Heard, Members
from app.observability.logs import printable
from app.policy.rollouts import ON, Switch
from app.protocol.errors import NotFound
from app.registry.live import Registry

TOKEN_S: Final = 30 * 86_400.0
"""A revoked token whose end was not said is taken to end after this long."""
MAX_LISTED: Final = 1000

log = structlog.get_logger()

Json = dict[str, Any]


class Answer(NamedTuple):
    """What an administrator is told.

    Attributes:
        is_complete: Whether every member of the fleet acts on it already.
    """

    value: Json
    is_complete: bool = True


class Console(NamedTuple):
    """The process that is administered.

    Attributes:
        authenticator: Gives what says who calls.
        administrators: Gives the keys of administrators.
        readiness: Says whether requests should be sent here, and why not.
        is_lasting: Whether what is decided survives this process.
    """

    fleet: Fleet
    registry: Registry
    authenticator: Callable[[], Authenticator]
    administrators: Callable[[], ApiKeys]
    readiness: Callable[[], Json]
    is_lasting: bool


class Operations:
    """Acts on behalf of administrators. Each method is given the id of the administrator's key.

    What changes something raises ``StoreUnavailable``, ``Unusable``, ``Contended`` or ``Full``
    as ``Fleet.change`` does, and leaves a line in the log.

    Args:
        clock: Gives POSIX time.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.time) -> None:
        self._console = console
        self._fleet = console.fleet
        self._clock = clock

    def status(self) -> Json:
        """The fleet as this process sees it."""
        fleet, control = self._fleet, self._fleet.control
        return {
            **self._console.readiness(),
            **fleet.detail(),
            "replica": fleet.replica,
            "problem": fleet.problem,
            "lasting": self._console.is_lasting,
            "fleet": [_shown_member(heard) for heard in fleet.members.living()],
            "switches": {name: _shown_switch(each) for name, each in control.switches.items()},
            "drained": {id: _instant(since) for id, since in control.drained.items()},
            "revoked": len(control.revoked),
        }

    # Tools

    def tools(self) -> Json:
        """Every tool that there is, and for whom."""
        served, switches = self._console.registry.catalog.tools, self._fleet.control.switches
        names = sorted({*self._console.registry.tools, *switches})
        return {
            "tools": [
                {
                    "name": name,
                    "loaded": name in self._console.registry.tools,
                    "served": name in served,
                    "switch": _shown_switch(switches[name]) if name in switches else None,
                }
                for name in names
            ]
        }

    def switch(self, tool: str) -> Json:
        """For whom a tool is there.

        Raises:
            NotFound: There is no such tool.
        """
        self._check_tool(tool)
        switch = self._fleet.control.switches.get(tool)
        return {"tool": tool, "switch": None if switch is None else _shown_switch(switch)}

    async def set_switch(self, by: str, tool: str, body: SwitchBody, *, keep_rest: bool) -> Answer:
        """Say for whom a tool is there.

        Args:
            keep_rest: What is not said stays as it is.

        Raises:
            NotFound: There is no such tool.
        """
        self._check_tool(tool)

        def edit(before: Control) -> Control:
            base = before.switches.get(tool, ON) if keep_rest else ON
            return before.with_switch(tool, body.over(base))

        control = await self._fleet.change(edit)
        switch = control.switches.get(tool, ON)
        self._note(by, "switch", control, tool=printable(tool, 128), **_shown_switch(switch))
        return await self._settled(control, {"tool": tool, "switch": _shown_switch(switch)})

    async def remove_switch(self, by: str, tool: str) -> Answer:
        """A tool is there for everybody again.

        Raises:
            NotFound: There is no such tool.
        """
        self._check_tool(tool)
        control = await self._fleet.change(lambda before: before.with_switch(tool, ON))
        self._note(by, "remove_switch", control, tool=printable(tool, 128))
        return await self._settled(control, {"tool": tool, "switch": None})

    # Replicas

    async def reload(self, by: str) -> Answer:
        """All replicas load settings and tools again."""
        control = await self._fleet.change(Control.with_reload)
        self._note(by, "reload", control)
        return await self._settled(
            control, {}, behind=lambda members: members.not_reloaded(control.reloads)
        )

    async def drain(self, by: str, replica: str) -> Answer:
        """A replica says that it wants no further requests.

        Raises:
            NotFound: There is no such replica.
        """
        self._check_replica(replica, self._fleet.members.replicas())
        now = self._clock()
        return await self._change_replica(
            by, "drain", replica, lambda c: c.with_drained(replica, now)
        )

    async def undrain(self, by: str, replica: str) -> Answer:
        """A replica takes requests again.

        Raises:
            NotFound: It was not drained.
        """
        self._check_replica(replica, self._fleet.control.drained)
        return await self._change_replica(
            by, "undrain", replica, lambda c: c.with_undrained(replica)
        )

    # Credentials

    def revoked(self) -> Json:
        """The credentials that were revoked, the first of them."""
        revoked = self._fleet.control.revoked
        listed = sorted(revoked.items(), key=lambda item: item[0])[:MAX_LISTED]
        return {
            "count": len(revoked),
            "credentials": [
                {
                    "issuer": issuer,
                    "id": id,
                    "expires_at": None if end is None else _instant(end - REVOCATION_MARGIN_S),
                }
                for (issuer, id), end in listed
            ],
        }

    async def revoke(self, by: str, body: CredentialBody) -> Answer:
        """A credential counts no longer, anywhere.

        Raises:
            NotFound: There is no such key or issuer, so nothing would be revoked.
        """
        until = self._end_of(body)
        credential = body.issuer, body.id
        control = await self._fleet.change(lambda before: before.with_revoked(credential, until))
        return await self._changed_credential(by, "revoke", body, control, until)

    async def restore(self, by: str, body: CredentialBody) -> Answer:
        """A credential counts again.

        Raises:
            NotFound: It was not revoked.
        """
        credential = body.issuer, body.id
        if credential not in self._fleet.control.revoked:
            raise NotFound("That credential is not among those that were revoked here.")
        control = await self._fleet.change(lambda before: before.with_restored(credential))
        return await self._changed_credential(by, "restore", body, control, None)

    # Inside.

    async def _change_replica(self, by: str, what: str, replica: str, edit: Edit) -> Answer:
        control = await self._fleet.change(edit)
        self._note(by, what, control, replica=replica)
        return await self._settled(control, {"replica": replica})

    async def _changed_credential(
        self, by: str, what: str, body: CredentialBody, control: Control, until: float | None
    ) -> Answer:
        id = printable(body.id)
        self._note(by, what, control, issuer=printable(body.issuer, 128), credential=id)
        shown: Json = {"issuer": body.issuer, "id": body.id}
        if what == "revoke":
            shown["expires_at"] = None if until is None else _instant(until)
        return await self._settled(control, shown)

    async def _settled(
        self,
        control: Control,
        value: Json,
        *,
        behind: Callable[[Members], list[str]] | None = None,
    ) -> Answer:
        missing = await self._fleet.settled(
            behind or (lambda members: members.behind(control.revision))
        )
        value |= {
            "revision": control.revision,
            "complete": not missing,
            "missing": missing,
            "lasting": self._console.is_lasting,
        }
        return Answer(value, is_complete=not missing)

    def _note(self, by: str, what: str, control: Control, **fields: Any) -> None:
        log.info("administered", by=by, action=what, revision=control.revision, **fields)

    def _check_tool(self, tool: str) -> None:
        known = {*self._console.registry.tools, *self._fleet.control.switches}
        if tool not in known:
            close = difflib.get_close_matches(tool[:256], sorted(known), n=1)
            hint = f' Did you mean "{close[0]}"?' if close else ""
            raise NotFound(f"There is no tool of that name here.{hint}")

    def _check_replica(self, replica: str, known: Collection[str]) -> None:
        if replica not in known:
            shown = ", ".join(sorted(known)[:20]) or "none"
            raise NotFound(f"There is no such replica to do that with. There are: {shown}.")

    def _end_of(self, body: CredentialBody) -> float | None:
        authenticator = self._console.authenticator()
        if body.issuer == API_KEY:
            if body.id not in authenticator.keys.by_id:
                raise NotFound("There is no API key with that id, so there is nothing to revoke.")
            return authenticator.keys.by_id[body.id][1].expires_at
        if body.issuer not in authenticator.sources:
            raise NotFound(
                "The issuer is none of [[auth.issuers]], nor api-key: there is nothing to revoke."
            )
        return self._clock() + TOKEN_S if body.until is None else body.until


def _shown_switch(switch: Switch) -> Json:
    return {
        "enabled": switch.enabled,
        "percent": switch.percent,
        "tenants": sorted(switch.tenants),
    }


def _shown_member(heard: Heard) -> Json:
    member = heard.member
    return {
        "member": member.name,
        "replica": member.replica,
        "version": member.version,
        "started": _instant(member.started),
        "clock_ahead_s": round(heard.ahead_s, 1),
        "configuration": member.configuration,
        "keys": list(member.keys),
        "catalog": member.catalog,
        "revision": member.revision,
        "reloads": member.reloads,
        "draining": member.draining,
    }


def _instant(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):  # of a clock that is somewhere else entirely
        return str(seconds)
