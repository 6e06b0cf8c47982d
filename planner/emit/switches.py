"""The switches of a recipe as flags, variables and keys of its framework's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.emit.program import Flag
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Spelling, Switch, Value, setting, words_of
from planner.specs.switches.table import BY_FRAMEWORK
from planner.specs.versions import version_of


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


def bridge(recipe: Recipe, layout: Layout) -> dict[str, dict[str, Any]]:
    """Keys of Megatron-Bridge's configuration, by part."""
    parts: dict[str, dict[str, Any]] = {}
    for _, value, spelling in _spelled(recipe, layout):
        for key, content in spelling.bridge:
            part, _, name = key.partition(".")
            parts.setdefault(part, {})[name] = _content(content, value)
    return parts


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
