"""Servers that start alone: without the store that others have, or without others."""

from starlette.applications import Starlette

from app.admin.operations import Operations
from app.fleet.control import Control, Epoch
from app.fleet.keeping import DOCUMENT
from app.policy.rollouts import Switch
from app.server import create_app
from app.settings import Settings
from app.state.local_bus import LocalBus
from app.state.memory import MemoryStore
from tests.administration.replicas import CONFIG, LinkedState
from tests.sessions.carrying import until


async def test_it_is_not_ready_before_it_acts_on_what_was_decided() -> None:
    control, bus = MemoryStore(), LocalBus()
    switched = Control().with_switch("beta", Switch(enabled=False)).numbered(Epoch(1, "ab" * 8))
    await control.set(DOCUMENT, switched.encode(), ttl_s=60)
    state = LinkedState(control, bus)
    state.is_required, state.line.is_cut = True, True
    app = create_app(Settings.model_validate(CONFIG), state=state)
    async with app._lifespan(Starlette()):
        service = app.service
        assert service is not None
        assert app.readiness().reasons == ("What administrators have decided is not known yet.",)
        state.line.is_cut = False
        await until(lambda: app.readiness().ready, "it is ready")
        assert "beta" not in service.registry.catalog.tools
        state.line.is_cut = True
        await until(lambda: service.fleet.problem is not None, "it cannot follow")
        assert app.readiness().ready


async def test_a_server_alone_tells_its_administrators_as_much() -> None:
    app = create_app(Settings.model_validate(CONFIG))
    async with app._lifespan(Starlette()):
        service = app.service
        assert service is not None
        status = Operations(app._console(service)).status()
    assert (status["ready"], status["agree"], status["one_revision"]) == (True, True, True)
    assert (status["lasting"], len(status["fleet"])) == (False, 1)
