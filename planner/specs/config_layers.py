"""Layers of a config.json as kinds and a pattern, or, where a rule says which layers have experts
and windows, as that rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

Fields = dict[str, Any]
LONGEST_UNIT = 24
"""Runs of equal layers in a group that a pattern repeats."""


def repeating(flags: Sequence[bool]) -> tuple[int, int] | None:
    """(first, every): entry i is true when i < first or (i + 1) % every == 0; every 0: nowhere
    beyond the first. None where no such rule holds.
    """
    layers = len(flags)
    leading = next((i for i, x in enumerate(flags) if not x), layers)
    for first, every in ((f, e) for f in sorted({0, leading}) for e in (0, *range(2, layers + 1))):
        if all(
            x == (i < first or (every > 0 and (i + 1) % every == 0)) for i, x in enumerate(flags)
        ):
            return first, every
    return None


def _after(flags: Sequence[bool]) -> tuple[int, int] | None:
    """(first, every): entry i is true when i >= first and (i + 1) % every == 0."""
    layers = range(len(flags))
    true = [i for i in layers if flags[i]]
    if not true:
        return None
    first = true[0]
    every = true[1] - true[0] if len(true) > 1 else (first + 1 if len(flags) > first + 1 else 1)
    if all(flags[i] == (i >= first and (i + 1) % every == 0) for i in layers):
        return (first if first >= every else 0), every
    return None


def layered(
    fields: Fields,
    own: Sequence[Fields],
    has_experts: Sequence[bool],
    sees_window: Sequence[bool],
    where: str,
) -> Fields:
    """What says which layer is which, of fields that have experts and window as every layer's.

    own: for each layer the fields of Kind that are its own; empty: none has any.
    """
    window, moe = fields["window"], fields["moe"]
    if own and all(kind == own[0] for kind in own):
        alike = {key: x for key, x in own[0].items() if key != "name"}
        return alike | layered({**fields, **alike}, (), has_experts, sees_window, where)
    if not own:
        sees_all = repeating([not x for x in sees_window]) if window else (0, 0)
        sparse = _after(has_experts) if moe and any(has_experts) else (0, 1)
        if sees_all and sparse:
            if window:
                window = {**window, "full_every": sees_all[1], "first_full_layers": sees_all[0]}
            if moe and any(has_experts):
                moe = {**moe, "first_dense_layers": sparse[0], "moe_every": sparse[1]}
            return {"window": window, "moe": moe if any(has_experts) else None}
        own = [{"name": "attention"}] * len(has_experts)
    each = [
        _kind(kind, fields, experts, windowed, (has_experts, sees_window))
        for kind, experts, windowed in zip(own, has_experts, sees_window, strict=True)
    ]
    kinds: list[Fields] = []
    for kind in each:
        if kind not in kinds:
            kinds.append(kind)
    taken: dict[str, int] = {}
    names = []
    for kind in kinds:
        taken[kind["name"]] = number = taken.get(kind["name"], 0) + 1
        names.append(kind["name"] + (f"-{number}" if number > 1 else ""))
    return {
        "window": None,
        "kinds": tuple({**kind, "name": name} for kind, name in zip(kinds, names, strict=True)),
        "pattern": written([names[kinds.index(kind)] for kind in each]),
    }


def _kind(
    own: Fields,
    fields: Fields,
    experts: bool,
    windowed: bool,
    all_of: tuple[Sequence[bool], Sequence[bool]],
) -> Fields:
    """The kind of one layer; its name says of experts and window what not all layers share."""
    kind, (some_experts, some_windowed) = dict(own), all_of
    attends = "mixer" not in kind or bool((kind["mixer"] or {}).get("beside_attention"))
    if attends and windowed:
        kind["window"] = fields["window"]
        kind["name"] += f"-{fields['window']['kind']}" if not all(some_windowed) else ""
    if fields["moe"] and kind.get("has_mlp", True) and "moe" not in kind and not all(some_experts):
        if not experts:
            kind["moe"] = None
        kind["name"] += "-experts" if experts else "-dense"
    return kind


def written(names: Sequence[str]) -> str:
    """The shortest pattern that we find of these layers: `(delta*3 attention)*12`."""
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    words = [f"{name}*{count}" if count > 1 else name for name, count in runs]
    out: list[str] = []
    at = 0
    while at < len(words):
        best, times = 1, 1
        for unit in range(2, min(LONGEST_UNIT, (len(words) - at) // 2) + 1):
            count = 1
            while words[at : at + unit] == words[at + count * unit : at + (count + 1) * unit]:
                count += 1
            if count > 1 and unit * count > best * times:
                best, times = unit, count
        group = " ".join(words[at : at + best])
        out.append(f"({group})*{times}" if times > 1 else group)
        at += best * times
    return " ".join(out)
