"""Argument rules: what they refuse, how they say it, and which rules are none."""

import math
import time
from datetime import date
from typing import Any

import pytest

from app.policy import Demand, Own, Policy
from app.policy.arguments import MAX_TEXT, ArgumentRules
from app.settings.auth import AuthSettings
from app.settings.policies import PolicySettings
from tests.support.cases import rows

SECRET = "hunter2-hunter2"
SCHEMAS: dict[str, dict[str, Any]] = {
    "amount": {"type": "number", "maximum": 1000},
    "currency": {"enum": ["EUR", "USD"]},
    "to": {"pattern": "^DE"},
    "lines": {"items": {"properties": {"cost": {"maximum": 5}}, "additionalProperties": False}},
    "mail": {"format": "email"},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {"not": {"const": SECRET}}}},
}


def demand(**schemas: dict[str, Any]) -> Demand:
    rule = PolicySettings(name="payments", tools=("pay",), arguments=schemas)
    return Policy(AuthSettings(), [rule]).demand("pay", {}, Own())


@rows(
    "arguments, sentences",
    ("all is well", {"amount": 1000, "currency": "EUR", "lines": [{"cost": 5}]}, []),
    ("what is not given is not checked", {}, []),
    ("nor is what no rule names", {"note": SECRET}, []),
    (
        "too much",
        {"amount": 1000.5},
        ["amount: the value is greater than the maximum of 1000, says rule 1 (payments)"],
    ),
    (
        "another type",
        {"amount": SECRET},
        ['amount: the value is not of type "number", says rule 1 (payments)'],
    ),
    (
        "not one of the choices",
        {"currency": SECRET},
        ['currency: the value is not one of "EUR" or "USD", says rule 1 (payments)'],
    ),
    (
        "not the pattern",
        {"to": SECRET},
        ['to: the value does not match "^DE", says rule 1 (payments)'],
    ),
    (
        "inside",
        {"lines": [{"cost": 1}, {"cost": 6}]},
        ["lines[1].cost: the value is greater than the maximum of 5, says rule 1 (payments)"],
    ),
    (
        "formats count",
        {"mail": SECRET},
        ['mail: the value is not a "email", says rule 1 (payments)'],
    ),
    (
        "each schema is a document of its own",
        {"tree": SECRET},
        [f'tree: {{"const":"{SECRET}"}} is not allowed for the value, says rule 1 (payments)'],
    ),
    (
        "one sentence for each argument",
        {"amount": 1001, "currency": "GBP"},
        [
            "amount: the value is greater than the maximum of 1000, says rule 1 (payments)",
            'currency: the value is not one of "EUR" or "USD", says rule 1 (payments)',
        ],
    ),
)
def test_a_sentence_names_the_argument_and_the_rule(
    arguments: dict[str, Any], sentences: list[str]
) -> None:
    assert demand(**SCHEMAS).argument_problems(arguments) == sentences


@pytest.mark.parametrize("name", sorted(SCHEMAS.keys() - {"tree"}))
@pytest.mark.parametrize("value", [SECRET, {SECRET: SECRET}, [SECRET], [{"cost": SECRET}]])
def test_no_sentence_repeats_a_value(name: str, value: Any) -> None:
    sentences = demand(**SCHEMAS).argument_problems({name: value})
    assert not any(f": {SECRET}" in text or f'"{SECRET}"' in text for text in sentences)


def test_sentences_are_bounded_and_printable() -> None:
    rules = demand(lines={"additionalProperties": False}, odd={"enum": ["x" * 5000]})
    sentences = rules.argument_problems({"lines": {"\r\nInjected: 1" * 1000: 1}, "odd": 1})
    assert len(sentences) == 2
    assert all(len(text) < 3 * MAX_TEXT and text.isprintable() for text in sentences)


def test_a_large_value_is_refused_at_once() -> None:
    rules = demand(lines={"items": {"type": "integer"}})
    started = time.perf_counter()
    assert len(rules.argument_problems({"lines": ["x"] * 300_000})) == 1
    assert time.perf_counter() - started < 1


def test_a_pattern_that_gives_up_refuses() -> None:
    rules = demand(to={"pattern": r"^(?=a)(a+)+\1$"})
    started = time.perf_counter()
    assert len(rules.argument_problems({"to": "a" * 40 + "b"})) == 1
    assert time.perf_counter() - started < 10


@rows(
    "schema, reason",
    ("a value of the wrong type", {"maximum": "1000"}, "at maximum"),
    ("no type", {"type": "money"}, "at type"),
    ("a typo", {"maximun": 1000}, "'maximun' is no keyword"),
    ("a typo inside", {"items": {"minimun": 1}}, "'minimun' is no keyword"),
    ("an unknown format", {"format": "iban"}, "Unknown format"),
    ("no pattern", {"pattern": "("}, "at pattern"),
    ("a reference to nothing", {"$ref": "#/$defs/x"}, "does not exist"),
    ("a reference to the network", {"$ref": "http://127.0.0.1:9/x"}, "is not fetched"),
    ("a reference to a file", {"$ref": "file:///etc/passwd"}, "is not fetched"),
    ("an unknown dialect", {"$schema": "http://json-schema.org/draft-03/schema#"}, "meta-schema"),
    ("a date", {"const": date(2026, 1, 1)}, "date"),
    ("no number", {"maximum": math.inf}, "at maximum"),
    ("too many parts", {"anyOf": [{"const": number} for number in range(2000)]}, "parts"),
)
def test_what_is_no_schema_is_refused_with_the_name_of_the_rule(
    schema: dict[str, Any], reason: str
) -> None:
    rules = [
        PolicySettings(tools=("*",)),
        PolicySettings(name="payments", tools=("pay",), arguments={"amount": schema}),
    ]
    with pytest.raises(ValueError, match="policies: rule 2 \\(payments\\)") as refused:
        Policy(AuthSettings(), rules)
    assert "the schema of the argument 'amount' is not valid" in str(refused.value)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 2 * MAX_TEXT


def test_schemas_may_describe_themselves() -> None:
    schema = {
        "$comment": "agreed with the auditors",
        "title": "Amount",
        "properties": {"maximun": {"type": "integer"}},
        "default": {"maximun": 1},
        "examples": [{"anything": 1}],
    }
    assert demand(amount=schema).arguments == {"amount": schema}


def test_without_argument_rules_there_is_nothing_to_say() -> None:
    assert demand().arguments is None
    assert demand().argument_problems({"amount": 5000}) == []


def test_equal_rules_are_equal() -> None:
    one, other = ArgumentRules(SCHEMAS, "rule 1"), ArgumentRules(dict(SCHEMAS), "rule 1")
    assert one == other and hash(one) == hash(other)
    assert one != ArgumentRules(SCHEMAS, "rule 2")
    assert one != ArgumentRules({"amount": {}}, "rule 1")
