"""Values that a framework's own parser refuses: words that an argument does not have, text where it
takes a number, numbers beyond its limits.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NamedTuple

from planner.advice.findings import Finding, Way
from planner.advice.flag_names import flag
from planner.intake.frameworks import accepted
from planner.intake.frameworks.accepted import Accepted
from planner.intake.frameworks.megatron_flags import Flag, flags
from planner.intake.frameworks.torchtitan import RENAMED
from planner.interpret.defaults import PARSED
from planner.interpret.interpret import Launch
from planner.specs.switches.switch import Switch
from planner.specs.switches.table import BY_FRAMEWORK, choices, may_state
from planner.specs.versions import Version, version_of

LISTED = 8


class Refused(NamedTuple):
    """A value that does not pass."""

    name: str
    """In Reading.values."""
    must: str
    """What it must be, in words."""
    value: Any
    nearest: Any
    """A value that passes; None: it goes."""


def findings(launch: Launch) -> list[Finding]:
    """One, of all that are stated and do not pass."""
    judges = {"megatron": _megatron, "deepspeed": _deepspeed, "torch": _torchtitan}
    refused = judges[launch.recipe.framework](launch)
    if not refused:
        return []
    kind = launch.reading.kind
    says = [
        f"{flag(kind, each.name)} must be {each.must}, but got {_shown(each.value)}"
        for each in refused[:LISTED]
    ]
    if len(refused) > LISTED:
        says.append(f"and {len(refused) - LISTED} more")
    nearest = {each.name: each.nearest for each in refused}
    return [Finding("error", "values that are refused", "; ".join(says), (Way(nearest),))]


def _shown(value: Any) -> str:
    return str(value)[:40] or "nothing"


def _stated(launch: Launch) -> dict[str, Any]:
    """Values of the file itself, but for those that hang on variables which nobody sets."""
    return {
        name: value.value
        for name, value in launch.reading.values.items()
        if name not in launch.absent and value.value is not None and "$" not in str(value.value)
    }


def _megatron(launch: Launch) -> list[Refused]:
    if launch.reading.kind not in PARSED or launch.recipe.software.name == "megatron-2021":
        return []
    version = version_of("megatron", launch.recipe.framework_version)
    stated = _stated(launch)
    refused = _limits(stated)
    passed = set()
    for argument in flags().values():
        if argument.dest not in stated or argument.kind in ("true", "false", "any"):
            continue
        fault = _fault(argument, stated[argument.dest], version)
        if fault is None and argument.dest not in refused:
            passed.add(argument.dest)  # by another flag of the same argument
        elif fault is not None:
            refused[argument.dest] = fault
    return [fault for name, fault in refused.items() if name not in passed]


def _fault(argument: Flag, stated: Any, version: Version) -> Refused | None:
    words = argument.choices_in(version)
    for value in stated if isinstance(stated, list) else [stated]:
        if words and str(value) not in words:
            return Refused(argument.dest, _one_of(words), value, _nearest(value, words))
        if not words and not _is_a(argument.kind, value):
            must = "a whole number" if argument.kind == "int" else "a number"
            whole = isinstance(value, float) and value.is_integer()
            return Refused(argument.dest, must, value, int(value) if whole else None)
    return None


def _is_a(kind: str, value: Any) -> bool:
    """Whether argparse's int or float reads a value."""
    if kind not in ("int", "float"):
        return True
    if isinstance(value, bool) or (kind == "int" and isinstance(value, float)):
        return False
    try:
        int(value) if kind == "int" else float(value)
    except (TypeError, ValueError):
        return False
    return True


def _deepspeed(launch: Launch) -> list[Refused]:
    """`auto` is Hugging Face's to fill in."""
    refused = []
    for key, takes_key in accepted.table(accepted.DEEPSPEED).items():
        name = f"deepspeed.{key}"
        value = launch.reading.values.get(name)
        if value is None or value.value == "auto" or takes_key.takes(value.value):
            continue
        refused.append(_beyond(name, takes_key, value.value))
    return refused


def _torchtitan(launch: Launch) -> list[Refused]:
    """0.3's files are Python, whose words nothing checks before they are used."""
    stated = _stated(launch)
    if launch.reading.kind != "torchtitan" or not launch.reading.file.endswith(".toml"):
        return []
    refused = []
    for key, takes_key in accepted.table(accepted.TORCHTITAN).items():
        name = RENAMED.get(key, key)
        if name in stated and not takes_key.takes(stated[name]):
            refused.append(_beyond(name, takes_key, stated[name]))
    return refused


def _beyond(name: str, key: Accepted, value: Any) -> Refused:
    if key.choices:
        return Refused(name, _one_of(key.choices), value, _nearest(value, key.choices))
    kinds = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
    must = kinds[key.kind]
    if key.limits:
        must += f" {key.bounds_in_words()}"
    is_number = isinstance(value, int | float)
    return Refused(name, must, value, key.nearest(value) if is_number else None)


def _limits(stated: dict[str, Any]) -> dict[str, Refused]:
    """Numbers beyond what a switch of Megatron-LM may have, by name."""
    refused = {}
    for name, switch in BY_FRAMEWORK["megatron"].items():
        value = stated.get(name)
        if switch.values or switch.words or not isinstance(value, int | float):
            continue
        if not may_state(switch, value):
            refused[name] = Refused(name, choices(switch), value, _within(switch, value))
    return refused


def _within(switch: Switch, value: float) -> float | None:
    """The nearest number that a switch may have; None: what is unset."""
    if switch.share:
        return min(max(value, 0.0), 1.0)
    return switch.lowest if switch.lowest > value and not switch.unset else None


def _one_of(words: tuple[str, ...]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _nearest(value: Any, words: tuple[str, ...]) -> str | None:
    close = get_close_matches(str(value), words, n=1)
    return close[0] if close else None
