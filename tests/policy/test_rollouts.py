"""For whom a tool is there: stable, monotone, about the right share, strangers as one."""

from hypothesis import given
from hypothesis import strategies as st

from app.policy.rollouts import EVERYBODY, ON, Switch, bucket
from app.principal import ANONYMOUS, Principal
from tests.support.cases import rows

names = st.text(min_size=1, max_size=40)
percents = st.integers(0, 100)
tenants = st.frozensets(st.sampled_from(["acme", "globex", "initech"]))
callers = st.builds(
    Principal, issuer=names, subject=names, tenant=st.none() | st.sampled_from(["acme", "globex"])
)
switches = st.builds(Switch, enabled=st.booleans(), percent=st.none() | percents, tenants=tenants)


def someone(number: int, tenant: str | None = None) -> Principal:
    return Principal(issuer="https://login.example.com", subject=f"user-{number}", tenant=tenant)


@given(names, callers, percents, percents)
def test_a_higher_percentage_takes_the_tool_from_nobody(
    tool: str, caller: Principal, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    if Switch(percent=low).admits(tool, caller):
        assert Switch(percent=high).admits(tool, caller)


@given(names, callers, switches)
def test_another_token_of_the_same_caller_makes_no_difference(
    tool: str, caller: Principal, switch: Switch
) -> None:
    refreshed = Principal(
        issuer=caller.issuer,
        subject=caller.subject,
        tenant=caller.tenant,
        scopes=frozenset({"more"}),
        credential_id="another",
        expires_at=1.0,
    )
    assert switch.admits(tool, caller) == switch.admits(tool, refreshed)


@given(names, switches, st.lists(callers, max_size=20))
def test_what_a_switch_says_of_everybody_is_so(
    tool: str, switch: Switch, who: list[Principal]
) -> None:
    admitted = {switch.admits(tool, caller) for caller in [*who, ANONYMOUS]}
    if switch.is_off:
        assert admitted == {False}
    elif not switch.tells_callers_apart:
        assert admitted == {True}


def test_callers_without_a_credential_are_in_one_place() -> None:
    for tool in ("a", "b", "c"):
        assert len({bucket(tool, Principal()) for _ in range(100)}) == 1


def test_the_share_is_about_right_and_another_one_for_another_tool() -> None:
    many = [someone(number) for number in range(4000)]
    for percent in (1, 10, 50, 90):
        admitted = [Switch(percent=percent).admits("pay", caller) for caller in many]
        # Five standard deviations of a fair draw.
        spread = 5 * (4000 * percent / 100 * (1 - percent / 100)) ** 0.5
        assert abs(sum(admitted) - 40 * percent) < spread
    half = Switch(percent=50)
    both = sum(half.admits("pay", each) and half.admits("refund", each) for each in many)
    assert 850 < both < 1150


PLACES = [2, 21, 89, 62, 35, 17, 47, 97]


def test_places_stay_as_they_are_from_release_to_release() -> None:
    assert [bucket("pay", someone(number)) for number in range(8)] == PLACES
    assert bucket("pay", ANONYMOUS) == 1


@rows(
    "switch, acme, others",
    ("nothing said", ON, True, True),
    ("off", Switch(enabled=False, tenants=frozenset({"acme"})), False, False),
    ("a tenant alone", Switch(tenants=frozenset({"acme"})), True, False),
    ("nobody but a tenant", Switch(percent=0, tenants=frozenset({"acme"})), True, False),
    ("everybody and a tenant", Switch(percent=100, tenants=frozenset({"acme"})), True, True),
    ("nobody", Switch(percent=0), False, False),
    ("everybody", Switch(percent=EVERYBODY), True, True),
)
def test_a_tenant_has_it_besides_the_share(switch: Switch, acme: bool, others: bool) -> None:
    for number in range(50):
        assert switch.admits("pay", someone(number, "acme")) is acme
        assert switch.admits("pay", someone(number, "globex")) is others
        assert switch.admits("pay", someone(number)) is others


def test_names_are_told_apart_whatever_they_are() -> None:
    glued = [Principal(issuer="ab", subject="c"), Principal(issuer="a", subject="bc")]
    places = {tuple(bucket(f"t{n}", each) for n in range(20)) for each in glued}
    assert len(places) == 2
