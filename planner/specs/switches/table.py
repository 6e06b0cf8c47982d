"""The switches of every framework: looked up, checked, written as text, and what settings make of
a software's figures.

To add one: an entry in the file of its framework. Rules, cost, files, readers, `ppplan switches`
and the JSON follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.errors import InputError, unknown
from planner.specs.documents import read_mapping
from planner.specs.recipe import Recipe
from planner.specs.software import Software
from planner.specs.software_documents import software as software_document
from planner.specs.switches import deepspeed, megatron, torch
from planner.specs.switches.switch import (
    NO_WORDS,
    VALUE,
    Plain,
    Switch,
    Switches,
    Value,
    words_of,
)
from planner.specs.versions import KNOWN, version_of

BY_FRAMEWORK: dict[str, dict[str, Switch]] = {
    "megatron": {switch.name: switch for switch in megatron.SWITCHES},
    "deepspeed": {switch.name: switch for switch in deepspeed.SWITCHES},
    "torch": {switch.name: switch for switch in torch.SWITCHES},
}
Figures = dict[str, Any]
"""Figures of a Software by their dotted names."""
PLAIN = {"megatron": "megatron-core", "deepspeed": "deepspeed", "torch": "torch"}
"""By framework the software whose figures the effects of switches start from."""
MAX_SIZE = 10**11
WHOLE = re.compile(r"[0-9]{1,20}|[0-9]{1,3}(,[0-9]{3}){1,6}")
ON, OFF = ("on", "true", "yes"), ("off", "false", "no")


def parse(words: Iterable[str], framework: str) -> dict[str, Value]:
    """`name=value` of a question. InputError for an unknown switch or value."""
    settings: dict[str, Value] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(
                f"a switch must be stated as NAME=VALUE, but got {word[:60]!r}; several values are"
                " for `ppplan compare --switch NAME=A,B`"
            )
        switch = BY_FRAMEWORK[framework].get(name)
        if switch is None:
            raise no_such(name, (framework,))
        if name in settings:
            raise InputError(f"switch {name} must be stated once, but got it twice; leave one out")
        settings[name] = _value(switch, text.strip())
    return settings


def restated(words: Iterable[str], settings: Switches) -> tuple[str, ...]:
    """Words of a question with settings in place of what they say of the same switches."""
    others = (word for word in words if word.partition("=")[0].replace("-", "_") not in settings)
    return (*others, *(f"{name}={shown(value)}" for name, value in settings.items()))


def no_such(name: str, frameworks: Iterable[str]) -> InputError:
    """Why none of the frameworks has a switch: it is not modelled, another's, or unknown."""
    frameworks = tuple(frameworks)
    for framework in frameworks:
        for names, reason in not_modelled().get(framework, {}).items():
            if name in names.split(", "):
                return InputError(
                    f"a switch must be one that is modelled, but {name} of {framework} is not"
                    f" ({reason}); leave it out"
                )
    others = [framework for framework, table in BY_FRAMEWORK.items() if name in table]
    whose = " or ".join(frameworks)
    if others:
        return InputError(
            f"a switch must be one of {whose}, but {name} is one of {' and '.join(others)}; leave"
            f" it out, or try --framework {others[0]}"
        )
    known = dict.fromkeys(name for framework in frameworks for name in BY_FRAMEWORK[framework])
    return unknown(f"{whose} switch" if len(frameworks) == 1 else "switch", name, tuple(known))


def versions_with(framework: str, switch: Switch, value: Value) -> str:
    """The versions that have a value, in words: `since 0.16`, `before 0.18`."""
    known = [text for text in KNOWN[framework] if text != "main"]
    having = [text for text in known if switch.spelled(value, version_of(framework, text))]
    if not having:
        return "in no known version"
    first, after = having[0], known.index(having[-1]) + 1
    words = [f"since {first}"] if first != known[0] else []
    words += [f"before {known[after]}"] if after < len(known) else []
    return " and ".join(words)


def unavailable(framework: str, settings: Switches, version: str) -> dict[str, str]:
    """Of settings those that a version has not, with the versions that have them in words."""
    number = version_of(framework, version)
    missing = {}
    for name, value in settings.items():
        switch = BY_FRAMEWORK[framework][name]
        if switch.spelled(value, number) is None:
            missing[name] = versions_with(framework, switch, value)
    return missing


def check_values(name: str, texts: Iterable[str]) -> None:
    """Raises InputError for a value that the switch has in no framework."""
    switches = [table[name] for table in BY_FRAMEWORK.values() if name in table]
    for text in texts:
        faults = []
        for switch in switches:
            try:
                _value(switch, text.strip())
            except InputError as fault:
                faults.append(fault)
        if len(faults) == len(switches):
            raise faults[0]


def with_required(settings: Switches, framework: str) -> dict[str, Value]:
    """Settings with what they need beside them. InputError where that is set otherwise."""
    out = dict(settings)
    for name, value in settings.items():
        switch = BY_FRAMEWORK[framework][name]
        if not switch.values or value == switch.values[0]:
            continue
        for other, needed in switch.requires:
            if out.setdefault(other, needed) != needed:
                raise InputError(
                    f"switch {name}={shown(value)} must go with {other}={shown(needed)}, but got"
                    f" {shown(out[other])}; leave one out"
                )
    return out


def _value(switch: Switch, text: str) -> Value:
    lowered = text.lower()
    if switch.words:
        return _set(switch, lowered)
    if not switch.values:
        try:
            number = float(text) if switch.share else _whole(text)
        except ValueError:
            raise _faulty(switch, text) from None
        if not _may_have(switch, number):
            raise _faulty(switch, text)
        return number
    for value in switch.values:
        words = (ON if value else OFF) if isinstance(value, bool) else (str(value).lower(),)
        if lowered in words:
            return value
    raise _faulty(switch, text)


def _whole(text: str) -> int:
    """A whole number of ASCII digits, as `shown` prints it too: 50,000,000. ValueError else."""
    if not WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text.replace(",", ""))


def _set(switch: Switch, text: str) -> str:
    """Words in the switch's own order, each once."""
    stated = words_of(text)
    if not stated and text == NO_WORDS:
        return NO_WORDS
    if not set(stated) <= set(switch.words):
        raise _faulty(switch, text)
    return "+".join(word for word in switch.words if word in stated)


def _faulty(switch: Switch, text: object) -> InputError:
    return InputError(f"switch {switch.name} must be {choices(switch)}, but got {str(text)[:40]!r}")


def choices(switch: Switch) -> str:
    """The values in words: `off or on`, `fp32 or bf16`."""
    if switch.words:
        return f"{NO_WORDS}, or any of {', '.join(switch.words)} joined by +"
    if switch.share:
        return "a number above 0, up to 1"
    if not switch.values:
        return f"a whole number from {switch.lowest} to {MAX_SIZE:,}"
    *others, last = (shown(value) for value in switch.values)
    return f"{', '.join(others)} or {last}"


def shown(value: Value) -> str:
    """A value as text: on, off, 50,000,000, hybridep."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else value


def names_of(name: str) -> tuple[str, ...]:
    """The values of a switch that are names, in any framework, each once."""
    names: dict[str, None] = {}
    for switches in BY_FRAMEWORK.values():
        if name in switches:
            names |= {value: None for value in switches[name].values if isinstance(value, str)}
    return tuple(names)


def check(settings: Switches, where: str) -> None:
    """Raises InputError for a switch that no framework has, or a value that it cannot take."""
    for name, value in settings.items():
        alike = [table[name] for table in BY_FRAMEWORK.values() if name in table]
        if not alike:
            known = [name for table in BY_FRAMEWORK.values() for name in table]
            raise InputError(f"{where}: {unknown('switch', name, known)}")
        faults = []
        for switch in alike:
            try:
                _check_value(switch, value, where)
            except InputError as fault:
                faults.append(fault)
        if len(faults) == len(alike):
            raise faults[0]


def _check_value(switch: Switch, value: object, where: str) -> None:
    if switch.values == (False, True):
        if not isinstance(value, bool):
            raise InputError(
                f"{where}: switches.{switch.name} must be true or false, but got {str(value)[:40]}"
            )
    elif switch.values:
        if value not in switch.values or isinstance(value, bool):
            raise InputError(
                f"{where}: switches.{switch.name} must be {choices(switch)}, but got"
                f" {str(value)[:40]}"
            )
    elif not _may_have(switch, value):
        raise InputError(
            f"{where}: switches.{switch.name} must be {choices(switch)}, but got {str(value)[:40]}"
        )


def _may_have(switch: Switch, value: object) -> bool:
    """Whether a switch without values takes a value."""
    if switch.words:
        return isinstance(value, str) and set(words_of(value)) <= set(switch.words)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if switch.share:
        return 0 < value <= 1
    if not isinstance(value, int):
        return False
    return value == switch.default or switch.lowest <= value <= MAX_SIZE


def may_state(switch: Switch, number: float) -> bool:
    """Whether a file may state a number of a switch without values; of a share also none."""
    if switch.share:
        return 0 <= number <= 1
    return _may_have(switch, number) and not (switch.unset and number == switch.default)


def of(framework: str, settings: Switches) -> dict[str, Value]:
    """The settings of switches that a framework has."""
    return {n: value for n, value in settings.items() if n in BY_FRAMEWORK.get(framework, ())}


def text(settings: Switches) -> str:
    """Settings in one line: `overlap_comm off, reduce_bucket_size 50,000,000`."""
    return ", ".join(f"{name} {shown(value)}" for name, value in settings.items())


def left_out(settings: Switches) -> tuple[str, ...]:
    """A line for a launch file about switches that a plan was measured with and that its files do
    not hold; nothing when there are none.
    """
    if not settings:
        return ()
    whose = sorted(name for name, table in BY_FRAMEWORK.items() if settings.keys() & table.keys())
    return (
        f"not written: {text(settings)}, switches of {' and '.join(whose)} with which the plan was"
        " measured",
    )


def read(framework: str, plain: Plain) -> dict[str, Value]:
    """What a file sets, by the words that its reader found."""
    settings: dict[str, Value] = {}
    for switch in BY_FRAMEWORK[framework].values():
        by_keys = any(spelling.keys for spelling in switch.spellings)
        read_plain = _read_keys if by_keys else _read_flags
        value = switch.read(plain) if switch.read else read_plain(switch, plain)
        if value is not None:
            settings[switch.name] = value
    return settings


def _read_flags(switch: Switch, plain: Plain) -> Value | None:
    """The value whose flags a file states; a number is stated by the switch's own name."""
    if not switch.values:
        number = plain.get(switch.name)
        return number if _may_have(switch, number) else None
    stated = plain.get(switch.name)
    return stated if isinstance(stated, bool) else None


def _read_keys(switch: Switch, plain: Plain) -> Value | None:
    """The value whose keys DeepSpeed's configuration states."""
    for spelling in switch.spellings:
        stated = {path: plain.get(f"deepspeed.{path}") for path, _ in spelling.keys}
        if VALUE in dict(spelling.keys).values():
            return _number_of(switch, next(iter(stated.values())))
        if stated and stated == dict(spelling.keys):
            return spelling.value
    return None


def _number_of(switch: Switch, stated: Any) -> int | float | None:
    """A number as a switch may have it; files also write 5e8."""
    whole = isinstance(stated, float) and not switch.share and stated.is_integer()
    number = int(stated) if whole else stated
    return number if _may_have(switch, number) else None


def defaults(framework: str) -> dict[str, Value]:
    """What holds where nothing is stated."""
    return {name: switch.default for name, switch in BY_FRAMEWORK[framework].items()}


def settings_of(software: Software) -> dict[str, Value]:
    """The value of every switch of a software's framework."""
    return defaults(software.framework) | software.switches


def with_switches(software: Software, settings: Switches) -> Software:
    """The software under other settings: of its figures those change that the settings make differ.

    A figure that the software has as its framework's newest would under the same settings is
    replaced; one that was fitted to its own runs changes in proportion.
    """
    changed = dict(software.switches) | of(software.framework, settings)
    if changed == software.switches:
        return software
    before = _figures(software.framework, _key(software.switches))
    after = _figures(software.framework, _key(changed))
    figures: Figures = {"switches": changed}
    for path, value in after.items():
        old = before[path]
        if old == value:
            continue
        now = software.figure(path)
        fitted = now != old and isinstance(value, int | float) and not isinstance(value, bool)
        figures[path] = now * value / old if fitted and old else value
    return software.with_figures(figures)


def under(recipe: Recipe, settings: Switches) -> Recipe:
    """The recipe as a trial turns its switches: files say them, and the cost model counts those
    that it knows.
    """
    switched = with_switches(recipe.software, settings)
    return recipe.model_copy(update={"switches": dict(settings), "software": switched})


def decided(software: Software) -> Figures:
    """The figures that switches decide, as they make them under the software's own settings."""
    return _figures(software.framework, _key(software.switches))


def _key(settings: Switches) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(settings.items()))


@lru_cache(maxsize=4096)
def _figures(framework: str, settings: tuple[tuple[str, Value], ...]) -> Figures:
    """The figures that switches decide, under settings."""
    plain = software_document(PLAIN[framework])
    values = defaults(framework) | dict(settings)
    every = effects(framework)
    decided: Figures = {path: plain.figure(path) for path in _decided_paths(framework)}
    for name, switch in BY_FRAMEWORK[framework].items():
        held = all(values[other] == value for other, value in switch.requires)
        value = values[name] if held else switch.first
        effects_of = every.get(name, {})
        if "figure" in effects_of:
            decided[effects_of["figure"]] = words_of(value) if switch.words else value
        effect = effects_of.get(value, {})
        decided |= effect.get("set", {})
        for path, more in effect.get("add", {}).items():
            decided[path] += more
        for path, factor in effect.get("scale", {}).items():
            decided[path] *= factor
    return decided


@lru_cache(maxsize=4)
def _decided_paths(framework: str) -> tuple[str, ...]:
    """Every figure that some value of some switch changes."""
    paths: set[str] = set()
    for name in BY_FRAMEWORK[framework]:
        for value, effect in effects(framework).get(name, {}).items():
            if value == "figure":
                paths.add(effect)
            elif value != "source":
                paths.update(path for changes in effect.values() for path in changes)
    return tuple(sorted(paths))


@lru_cache(maxsize=4)
def effects(framework: str) -> dict[str, dict[Any, Any]]:
    """What the values of each switch make of a software's figures, with the source."""
    path = Path(__file__).with_name(f"{framework}.yaml")
    return read_mapping(path) if path.exists() else {}


@lru_cache(maxsize=1)
def not_modelled() -> dict[str, dict[str, str]]:
    """By framework the switches that it has and nothing here sets or prices, with the reason."""
    document: dict[str, dict[str, str]] = read_mapping(
        Path(__file__).with_name("not_modelled.yaml")
    )
    return document


def is_guess(framework: str, name: str) -> bool:
    """Whether no measurement stands behind a switch's effect: its source says so."""
    return str(effects(framework).get(name, {}).get("source", "")).startswith("guess")


def available(software: Software, version: str) -> tuple[Software, tuple[str, ...]]:
    """The software with every switch at a value that the version can write, and a note on each that
    had another: the most that the version has of it.
    """
    number = version_of(software.framework, version)
    changed: dict[str, Value] = {}
    notes = []
    for name, value in software.switches.items():
        switch = BY_FRAMEWORK[software.framework][name]
        if value == switch.first or switch.spelled(value, number):
            continue
        below = switch.values[: switch.values.index(value)] if switch.values else ()
        nearest = next((v for v in reversed(below) if switch.spelled(v, number)), switch.first)
        changed[name] = nearest
        notes.append(
            f"{name}: {shown(nearest)}, as {software.framework} {version} has no {shown(value)}"
        )
    return with_switches(software, changed), tuple(notes)
