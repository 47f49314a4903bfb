"""What administrators send, as strict models."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.functional_validators import AfterValidator

from app.fleet.control import MAX_NAME, MAX_TENANTS
from app.policy.rollouts import Switch
from app.protocol.errors import InvalidRequest
from app.protocol.jsonrpc import loads

MAX_PROBLEMS: Final = 5


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have no control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Nothing(Body):
    """Where the address says everything."""


class SwitchBody(Body):
    enabled: bool = True
    percent: Annotated[int, Field(ge=0, le=100)] | None = None
    tenants: Annotated[list[Name], Field(max_length=MAX_TENANTS)] = []

    def over(self, before: Switch) -> Switch:
        """A switch of which what was sent is changed, and the rest stays."""
        sent = self.model_fields_set
        return Switch(
            enabled=self.enabled if "enabled" in sent else before.enabled,
            percent=self.percent if "percent" in sent else before.percent,
            tenants=frozenset(self.tenants) if "tenants" in sent else before.tenants,
        )


class CredentialBody(Body):
    """A credential.

    Attributes:
        issuer: ``api-key`` for a key of the server's own.
        id: ``jti`` of the token, or id of the key.
        expires_at: When it would end by itself.
    """

    issuer: Name
    id: Name
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = None

    @property
    def until(self) -> float | None:
        """POSIX time."""
        at: datetime | None = self.expires_at
        return None if at is None else at.timestamp()


Model = TypeVar("Model", bound=Body)


def parse_body(data: bytes, model: type[Model]) -> Model:
    """A body as the model that it must be; an empty one is an empty object.

    Raises:
        ParseError, InvalidRequest: It is not; the text says why, and quotes no value.
    """
    value: Any = loads(data) if data else {}
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        known = ", ".join(model.model_fields) or "none"
        reasons = [
            _reason(detail["loc"], detail["type"], detail["msg"], known)
            for detail in details[:MAX_PROBLEMS]
        ]
        raise InvalidRequest("; ".join(reasons) + ".") from None


def _reason(loc: tuple[int | str, ...], kind: str, message: str, known: str) -> str:
    if kind == "extra_forbidden":  # its name is the sender's, of any length
        return f"A member is not known; known are: {known}"
    place = ".".join(str(step) for step in loc)
    said = message.removeprefix("Value error, ")
    return f"{place}: {said[:1].lower()}{said[1:]}"
