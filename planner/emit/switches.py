"""The switches of a recipe as flags, variables and keys of its framework's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from planner.emit.program import Flag
from planner.errors import InputError
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Keys, Spelling, Switch, Value, setting, words_of
from planner.specs.switches.table import BY_FRAMEWORK, shown
from planner.specs.versions import version_of

Parts = dict[str, dict[str, Any]]
"""Keys of a configuration with their values, by part."""
Format = Literal["titan", "toml", "accelerate"]
NAMES = {"titan": "torchtitan 0.3", "toml": "torchtitan 0.2", "accelerate": "Accelerate"}


def flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Those of every switch that acts in the layout."""
    return [
        _flag(flag, value)
        for _, value, spelling in _spelled(recipe, layout)
        for flag in spelling.flags
    ]


def _flag(words: tuple[str, ...], value: Value) -> Flag:
    """A flag with its arguments, of a set one for each of its words."""
    name, *arguments = words
    if arguments == ["{words}"]:
        return (name, *words_of(value))
    return (name, *(word.format(value=value) for word in arguments))


def environment(recipe: Recipe, layout: Layout) -> list[tuple[str, str]]:
    """Variables that turn switches on."""
    return [pair for _, _, spelling in _spelled(recipe, layout) for pair in spelling.environment]


def bridge(recipe: Recipe, layout: Layout) -> Parts:
    """Keys of Megatron-Bridge's configuration, by part."""
    parts: Parts = {}
    for _, value, spelling in _spelled(recipe, layout):
        _add(parts, value, spelling.bridge)
    return parts


def configuration(recipe: Recipe, layout: Layout, format: Format) -> Parts:
    """Keys of torchtitan's or Accelerate's configuration, by part. InputError where the format has
    no words for a value that is asked for; one that was only measured with is left out.
    """
    parts: Parts = {}
    measured = wordless(recipe, layout, format)
    for switch, value, spelling in _spelled(recipe, layout):
        if switch.name in measured:
            continue
        keys: Keys | None = getattr(spelling, format)
        if keys is None:
            raise InputError(
                f"{NAMES[format]} must have words for every switch, but has none for"
                f" {switch.name} {shown(value)}; try --switch {switch.name}="
                f"{_sayable(switch, format)}"
            )
        _add(parts, value, keys)
    return parts


def wordless(recipe: Recipe, layout: Layout, format: Format) -> dict[str, Value]:
    """The switches that a plan was measured with and for whose value the format has no words."""
    return {
        switch.name: value
        for switch, value, spelling in _spelled(recipe, layout)
        if switch.name in recipe.switches and getattr(spelling, format) is None
    }


def _sayable(switch: Switch, format: Format) -> str:
    """A value that the format can write, the framework's default if it can."""
    if not switch.values:
        return shown(switch.default)
    values = [one.value for one in switch.spellings if getattr(one, format) is not None]
    return shown(switch.default if switch.default in values else values[0])


def _add(parts: Parts, value: Value, keys: Keys) -> None:
    for key, content in keys:
        part, _, name = key.rpartition(".")
        parts.setdefault(part, {})[name] = _content(content, value)


def _content(content: Any, value: Value) -> Any:
    """What is written at a key: what the spelling says, with the value in its place."""
    if content == "{value}":
        return value
    if content == "{words}":
        return list(words_of(value))
    return list(content) if isinstance(content, tuple) else content


def keys(recipe: Recipe, layout: Layout) -> list[tuple[str, Any]]:
    """Keys of DeepSpeed's configuration, by path."""
    return [
        (path, _content(content, value))
        for _, value, spelling in _spelled(recipe, layout, defaults=True)
        for path, content in spelling.keys
    ]


def _spelled(
    recipe: Recipe, layout: Layout, defaults: bool = False
) -> Iterator[tuple[Switch, Value, Spelling]]:
    """Every switch with its value and how the recipe's version writes it; where it changes nothing,
    its first value. defaults: with whole numbers that are the framework's own.
    """
    version = version_of(recipe.framework, recipe.framework_version)
    for switch in BY_FRAMEWORK[recipe.framework].values():
        value = setting(recipe, switch.name, switch.default)
        plain = not switch.values and value == switch.default and not defaults
        if not switch.exists(recipe, layout) or plain:
            continue
        if not switch.acts(recipe, layout):
            if not switch.values:
                continue
            value = switch.values[0]
        spelling = switch.spelled(value, version, recipe.model.moe is not None, (recipe, layout))
        if spelling:
            yield switch, value, spelling
