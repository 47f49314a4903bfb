"""The response state machine."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.protocol.stream import TRANSITIONS, Event, IllegalTransition, State, advance


@pytest.mark.parametrize(
    "pair", [(s, e) for s in State for e in Event if (s, e) not in TRANSITIONS], ids=str
)
def test_a_pair_that_is_not_in_the_table_is_our_bug(pair: tuple[State, Event]) -> None:
    with pytest.raises(IllegalTransition):
        advance(*pair)


class Response(RuleBasedStateMachine):
    """Any order of events that the table allows makes a response that the protocol allows."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State.OPENED
        self.sent: list[Event] = []

    @precondition(lambda self: self.state is State.OPENED)
    @rule(event=st.sampled_from([event for event in Event if event is not Event.END]))
    def begins(self, event: Event) -> None:
        self.state = advance(self.state, event)
        self.sent.append(event)

    @precondition(lambda self: self.state is State.STREAMING)
    @rule(event=st.sampled_from(Event))
    def happens(self, event: Event) -> None:
        self.state = advance(self.state, event)
        self.sent.append(event)

    @precondition(lambda self: self.state in (State.DONE, State.ABANDONED))
    @rule(event=st.sampled_from([Event.STREAM, Event.NOTIFICATION, Event.RESPONSE, Event.END]))
    def nothing_follows(self, event: Event) -> None:
        with pytest.raises(IllegalTransition):
            advance(self.state, event)

    @invariant()
    def at_most_one_response_and_it_comes_last(self) -> None:
        assert self.sent.count(Event.RESPONSE) <= 1
        if Event.RESPONSE in self.sent:
            assert self.sent[-1] is Event.RESPONSE


TestResponse = Response.TestCase
