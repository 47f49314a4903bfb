"""A response as a state machine: ``notification* response end``.

Streamable HTTP, "Receiving Messages": notifications relate to the request and come before the
one response, which ends the stream. Nothing follows a disconnect ("Cancellation").
"""

from enum import IntEnum, auto
from typing import Final


class State(IntEnum):
    OPENED = auto()
    """Nothing was sent: the response can still be a single JSON object."""
    STREAMING = auto()
    DONE = auto()
    ABANDONED = auto()


class Event(IntEnum):
    STREAM = auto()
    """The head of an event stream, or a keep-alive comment on it."""
    NOTIFICATION = auto()
    RESPONSE = auto()
    END = auto()
    """The stream ends without the response: revisions before 2026-07-28 alone."""
    DISCONNECT = auto()


# A pair that is absent is our bug, never the peer's.
TRANSITIONS: Final = {
    (State.OPENED, Event.STREAM): State.STREAMING,
    (State.OPENED, Event.NOTIFICATION): State.STREAMING,
    (State.OPENED, Event.RESPONSE): State.DONE,
    (State.OPENED, Event.DISCONNECT): State.ABANDONED,
    (State.STREAMING, Event.STREAM): State.STREAMING,
    (State.STREAMING, Event.NOTIFICATION): State.STREAMING,
    (State.STREAMING, Event.RESPONSE): State.DONE,
    (State.STREAMING, Event.END): State.DONE,
    (State.STREAMING, Event.DISCONNECT): State.ABANDONED,
    (State.DONE, Event.DISCONNECT): State.DONE,
    (State.ABANDONED, Event.DISCONNECT): State.ABANDONED,
}


class IllegalTransition(RuntimeError):
    """This server tried to send what the protocol does not allow there."""


def advance(state: State, event: Event) -> State:
    """The state after an event.

    Raises:
        IllegalTransition: The event is not allowed in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.name}") from None
