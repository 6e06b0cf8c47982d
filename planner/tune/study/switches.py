"""Switches as knobs: which values of the software's switches a runner can be asked of a layout, and
which setting is tried next.

They are those of planner.specs.switches: what the version can write, acts in the layout, breaks no
rule, fits and keeps the arithmetic, in the order of what the cost model expects of each; then those
of which it knows nothing. They are tried one at a time, with what each needs, on the fastest
measured layouts alone; what is not faster by more than the noise is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from planner.cost.params.layer import total_params
from planner.emit import deepspeed, deepspeed_config, environment, megatron
from planner.errors import InputError
from planner.estimate import closed_form
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.switch import Switch, Switches, Value, setting
from planner.specs.switches.table import BY_FRAMEWORK, effects, under
from planner.switch_gains import PAYS, SwitchGain, other_values
from planner.tune import torch_support
from planner.tune.study.space import MAX_OOM_PROBABILITY

Choices = dict[str, tuple[Value, ...]]
"""Of each switch that changes something: what holds without it, then what else is worth a run; the
most promising switch first.
"""
Offers = Callable[[Layout, Switches], Choices]
"""The choices of a layout under some switches."""

DDP_MIB = 25
"""torch's bucket_cap_mb."""
REDUCE_NUMEL = 64 * 2**20
"""Elements that the torch benchmark flattens and reduces at once."""
MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK = 40_000_000, 1_000_000
"""Elements of Megatron's buckets: the larger of the first, and the second times the data-parallel
ranks.
"""
BENCHMARK = ("overlap_reduce", "bucket_cap_mb", "reduce_bucket_numel", "prefetch_layers")
"""Switches that the torch benchmark alone has."""
UNKNOWN = (0.0, 1)
"""The rank of a switch whose effect is a guess or not modelled: behind every expected gain."""
TIMES = 4
"""How much larger or smaller the sizes are that are tried."""


def none(layout: Layout, now: Switches) -> Choices:
    return {}


def offers(
    recipe: Recipe,
    runner: str,
    devices: int,
    device: str = "cuda",
    fixed: Collection[str] = (),
    lossy: bool = False,
) -> Offers:
    """The choices of a runner; none of a layout that is larger than the machine, of which only
    layers run.

    fixed: switches that the question sets, which stay as they are; lossy: values that change the
    numbers may be tried.
    """
    own = {"torch": _torch, "deepspeed": _deepspeed, "megatron": _megatron}[runner]
    idle = {EXPANDABLE_SEGMENTS.name} if device == "cpu" else set()

    @lru_cache(maxsize=4096)
    def choices(layout: Layout, now: tuple[tuple[str, Value], ...]) -> Choices:
        sizes = own(recipe, layout, dict(now))
        every = _of_table(recipe, layout, dict(now), runner, sizes, lossy)
        out: Choices = {}
        for name, values in every.items():
            if len(values) > 1 and name not in idle and name not in fixed:
                out[name] = values
        return out

    def offered(layout: Layout, now: Switches) -> Choices:
        return {} if layout.gpus > devices else choices(layout, tuple(sorted(now.items())))

    return offered


def unsupported(recipe: Recipe, layout: Layout, runner: str) -> tuple[str, ...]:
    """Switches of the plan's software that act in a layout, and that the runner does not turn."""
    names = {gain.name for gain in _gains(recipe, layout, False)}
    turned = {*_of_table(recipe, layout, {}, runner, {}, False), *BENCHMARK}
    return tuple(name for name in BY_FRAMEWORK[recipe.framework] if name in names - turned)


def _of_table(
    recipe: Recipe, layout: Layout, now: Switches, runner: str, own: Choices, lossy: bool
) -> Choices:
    """Of the software's switches with named values those that the runner writes, the most promising
    first; the runner's own stand before those of which no gain is expected.
    """
    changed = under(recipe, now)
    least = PAYS * float(closed_form(changed, layout).step_s)
    before = _written(changed, layout, runner)
    out: Choices = {}
    for gain in sorted(_gains(changed, layout, lossy), key=lambda gain: _rank(gain, recipe, least)):
        if _rank(gain, recipe, least) > UNKNOWN:
            out |= own
        switch = BY_FRAMEWORK[recipe.framework][gain.name]
        if _contradicted(switch, gain.value, now):
            continue
        if _written(under(changed, gain.settings), layout, runner) == before:
            continue
        usual = _without(recipe, layout, switch)
        chosen = now.get(gain.name, usual)
        values = out.get(gain.name, (usual, chosen) if chosen != usual else (usual,))
        if gain.name not in own:
            out[gain.name] = values if gain.value in values else (*values, gain.value)
    return out | own


def _gains(recipe: Recipe, layout: Layout, lossy: bool) -> list[SwitchGain]:
    """What the other values of switches would give, of those that keep the arithmetic unless lossy
    ones are allowed.
    """
    every = other_values(recipe, layout, MAX_OOM_PROBABILITY)
    return [gain for gain in every if lossy or gain.keeps_arithmetic]


def _rank(gain: SwitchGain, recipe: Recipe, least: float) -> tuple[float, int]:
    """Expected gains first, the largest leading; then guesses and what is not modelled; then what
    changes no time; at last what is expected to lose, the largest loss at the end.
    """
    unknown = gain.guessed or gain.name not in effects(recipe.framework)
    if gain.saved_s > least:
        return -gain.saved_s, 0
    if unknown:
        return UNKNOWN
    return (-gain.saved_s, 3) if gain.saved_s < -least else (0.0, 2)


def _without(recipe: Recipe, layout: Layout, switch: Switch) -> Value:
    """The value that is written where a trial sets none."""
    plain = under(recipe, {})
    if not switch.exists(plain, layout) & switch.acts(plain, layout):
        return switch.values[0]
    return setting(plain, switch.name, switch.default)


def _contradicted(switch: Switch, value: Value, now: Switches) -> bool:
    """Whether a setting turns off what the value needs."""
    if value == switch.first:
        return False
    return any(now.get(name, needed) != needed for name, needed in switch.requires)


def _written(recipe: Recipe, layout: Layout, runner: str) -> object:
    """What the runner tells the software of its switches, as `emit` spells them."""
    allocator = torch_support.allocator(recipe, layout)
    if runner == "torch":
        return allocator
    if recipe.framework != runner:
        return None
    try:
        if runner == "megatron":
            return megatron.flags(recipe, layout), environment.megatron(recipe, layout)
        flags = deepspeed.run_flags(recipe, layout)
        return flags, deepspeed_config.config(recipe, layout), allocator
    except InputError:  # what cannot be written cannot be tried
        return None


def settings(layout: Layout, now: Switches, offered: Offers) -> Iterator[dict[str, Value]]:
    """Every setting that differs from the present one in a switch; what would then change nothing
    is left out.
    """
    for word, values in offered(layout, now).items():
        for value in values:
            if value == now.get(word, values[0]):
                continue
            yield effective(layout, {**now, **_needed(word, value), word: value}, offered)


def _needed(name: str, value: Value) -> dict[str, Value]:
    """What a value is turned on together with, in whichever software has it."""
    needed: dict[str, Value] = {}
    for switches in BY_FRAMEWORK.values():
        switch = switches.get(name)
        if switch is not None and switch.values and value != switch.values[0]:
            needed |= dict(switch.requires)
    return needed


def effective(layout: Layout, setting: Switches, offered: Offers) -> dict[str, Value]:
    """Of a setting what changes something: neither words of another software nor what holds
    anyway.
    """
    choices = offered(layout, setting)
    return {
        name: value
        for name, value in setting.items()
        if name in choices and value != choices[name][0]
    }


def text(switches: Mapping[str, Any]) -> str:
    """The same text for the same setting; empty for none."""
    return json.dumps(dict(switches), sort_keys=True) if switches else ""


def _weights(recipe: Recipe, layout: Layout) -> int:
    """Parameters of a rank, about."""
    return -(-total_params(recipe.model) // int(layout.tp * layout.pp))


def _sizes(usual: int, total: int) -> tuple[int, ...]:
    """The usual size and others that make another number of pieces of the whole; where it is one
    piece, a quarter of it.
    """
    if usual >= total:
        quarter = -(-total // TIMES)
        return (usual, quarter) if 1 <= quarter < total else (usual,)
    larger, smaller = usual * TIMES, usual // TIMES
    return (usual, larger, smaller) if smaller >= 1 else (usual, larger)


def _torch(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    if layout.dp == 1:
        return {}
    out: Choices = {}
    if layout.zero >= 2:
        if recipe.model.num_layers // int(layout.pp * layout.v) > 1:
            out["prefetch_layers"] = (0, 1, 2)
        return out
    weights = _weights(recipe, layout)
    if torch_support.may_ddp(recipe, layout):
        out["overlap_reduce"] = (True, False)
        if now.get("overlap_reduce", True):
            out["bucket_cap_mb"] = _sizes(DDP_MIB, -(-weights * 4 // 2**20))
            return out
    out["reduce_bucket_numel"] = _sizes(REDUCE_NUMEL, weights)
    return out


def _deepspeed(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    """Of the words that its JSON has for the layout those that change something; a pipeline reduces
    after its last micro-batch.
    """
    plain: dict[str, Any] = deepspeed_config.zero(under(recipe, {}), layout)
    if layout.zero == 0 or layout.dp * layout.cp == 1:
        return {}
    weights = _weights(recipe, layout)
    out: Choices = {}
    if layout.pp == 1:
        out["overlap_comm"] = (plain["overlap_comm"], not plain["overlap_comm"])
    for word in ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size"):
        if word in plain:
            out[word] = _sizes(plain[word], weights)
    if layout.pp > 1 and recipe.precision == "bf16":
        # the pipeline's own optimizer reduces in pieces of a fixed size
        out.pop("reduce_bucket_size")
    if layout.zero == 3:
        out["stage3_prefetch_bucket_size"] += (0,)
    if layout.zero == 2 and not layout.offload:
        out["contiguous_gradients"] = (True, False)
    return out


def _megatron(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    """Sizes of Megatron's own data parallelism; its sharding beyond the optimizer's states has
    others.
    """
    changed = under(recipe, now)
    name, ranks = "ddp_bucket_size", int(layout.dp * layout.cp)
    written = bool(BY_FRAMEWORK["megatron"][name].exists(changed, layout))
    if layout.zero >= 2 or ranks == 1 or not written:
        return {}
    usual = max(MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK * ranks)
    return {name: _sizes(usual, _weights(recipe, layout))}
