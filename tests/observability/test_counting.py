"""Counts: plain numbers, bounded whatever comes."""

import pytest

from app.observability.counting import MAX_SERIES, OTHER, Counter, Family, Gauge, Histogram, Names


def test_a_counter_counts_by_its_labels() -> None:
    counter = Counter("c_total", "", ("a", "b"))
    for labels in (("x", "1"), ("x", "1"), ("y", "1")):
        counter.inc(*labels)
    counter.add(2.5, "y", "1")

    assert counter.copy() == {("x", "1"): 2, ("y", "1"): 3.5}


def test_a_value_on_a_bound_is_below_it() -> None:
    histogram = Histogram("h", "", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)

    assert histogram.copy() == {(): [2, 1, 1, pytest.approx(7.65)]}


def test_a_copy_stays_as_it_was() -> None:
    histogram, gauge = Histogram("h", "", bounds=(1.0,)), Gauge("g", "")
    histogram.observe(0.5)
    gauge.set(1)
    before = histogram.copy(), gauge.copy()
    histogram.observe(0.5)
    gauge.set(2)

    assert before == ({(): [1, 0, 0.5]}, {(): 1})


def test_a_gauge_forgets_series_that_are_not_the_case_any_more() -> None:
    gauge = Gauge("g", "", ("fingerprint",))
    gauge.replace({("old",): 1})
    gauge.replace({("new",): 1})

    assert gauge.copy() == {("new",): 1}


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_a_family_that_is_full_counts_the_rest_as_one(kind: str) -> None:
    counter, gauge = Counter("c_total", "", ("a",)), Gauge("g", "", ("a",))
    histogram = Histogram("h", "", ("a",), bounds=(1.0,))
    families: dict[str, Family] = {"counter": counter, "gauge": gauge, "histogram": histogram}
    family = families[kind]
    for number in range(MAX_SERIES + 500):
        counter.inc(str(number))
        gauge.set(1, str(number))
        histogram.observe(0.1, str(number))

    assert len(family.copy()) == MAX_SERIES + 1
    assert (OTHER,) in family.copy()


def test_names_that_come_too_late_are_one() -> None:
    names = Names(2)

    assert [names.label(name) for name in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        OTHER,
        "a",
        OTHER,
    ]
