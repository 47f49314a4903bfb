"""Hooks: functions around the calls of many tools. None runs until config.toml names it:

[[hooks]]
tools = ["get_weather_data"]
use = "units_by_locale"

[[hooks]]
tools = ["get_*", "list_*"]
use = "experiment"
options = { name = "ranking", groups = ["a", "b"] }
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from app import CallResult, HookCall, after_call

FAHRENHEIT_COUNTRIES: Final = frozenset({"US", "BS", "BZ", "KY", "LR", "PW", "FM", "MH"})
"""Where temperatures are told in degrees Fahrenheit."""


@after_call
def units_by_locale(call: HookCall, result: CallResult) -> CallResult | None:
    """Tell temperatures in the unit of the user's country.

    A client that knows its user sends ``"_meta": {"metadata": {"locale": "en-US"}}``.
    """
    metadata, found = call.meta.get("metadata"), result.structured_content
    locale = metadata.get("locale") if isinstance(metadata, Mapping) else None
    if not isinstance(locale, str) or not isinstance(found, dict) or result.is_error:
        return None
    country = locale.replace("_", "-").rpartition("-")[2].upper()
    wanted = "fahrenheit" if country in FAHRENHEIT_COUNTRIES else "celsius"
    # Only where the model has not asked for a unit itself.
    if "unit" in call.arguments or found.get("unit") in {None, wanted}:
        return None
    value = float(found["temperature"])
    value = value * 9 / 5 + 32 if wanted == "fahrenheit" else (value - 32) * 5 / 9
    changed = {**found, "temperature": round(value, 1), "unit": wanted}
    return dataclasses.replace(result, structured_content=changed)


@after_call
def experiment(call: HookCall, result: CallResult) -> CallResult:
    """Say in the annotations of each block which group of an experiment the caller is in.

    A caller is always in the same group; callers without a credential are all in one.

    Options:
        name: Of the experiment.
        groups: Names of its groups.
    """
    name, groups = call.options["name"], call.options["groups"]
    who = f"{name} {call.principal.issuer} {call.principal.subject}"
    group = groups[int.from_bytes(hashlib.sha256(who.encode()).digest()[:4]) % len(groups)]
    tag: dict[str, Any] = {"experiment": f"{name}:{group}"}
    blocks = [
        {**block, "annotations": {**block.get("annotations", {}), **tag}}
        for block in result.blocks()
    ]
    return dataclasses.replace(result, content=blocks)
