"""Every layout worth asking about, as one batch: the product of each knob's candidates, legal or
not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.enumerate.experts import expert_splits, sequence_ranks, uneven_ends, within
from planner.enumerate.experts import modules as expert_modules
from planner.layout import (
    OFFLOAD_CODE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    SCHEDULES,
    Layout,
    Layouts,
    module_mask,
)
from planner.schedules.table import schedule
from planner.specs.recipe import Recipe

MAX_MICRO_BATCH = 16
"""Sequences of a micro-batch, unless the question asks for more."""
MAX_ZERO = {"megatron": 1}
"""Sharding stages that are searched: Megatron-FSDP (2, 3) only when the question fixes it, or the
stack has no other.
"""
FIXED = ("group", "first_layers", "last_layers", "cp_a2a")
"""Knobs that take a value only when the question fixes one."""
BLOCKS = 4
"""Full recomputation of a part of the layers: in quarters of a stage."""


def divisors(number: int) -> np.ndarray:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return np.array(sorted({*small, *(number // n for n in small)}))


def _recomputations(recipe: Recipe) -> list[tuple[int, int, int]]:
    """(recompute, modules, quarters of a stage) choices: none, selective by modules, full for a
    part or for all layers.
    """
    none, selective, full = (
        RECOMPUTE_CODE["none"],
        RECOMPUTE_CODE["selective"],
        RECOMPUTE_CODE["full"],
    )
    core = ["core_attn"] * (recipe.attention == "unfused")  # under flash it saves next to nothing
    modules = [core] * bool(core)
    if recipe.software.name == "megatron":  # modules beyond the core came with megatron-core 0.12
        modules.append([*core, "mlp"])  # a dense layer has no separate norm to recompute
    modules = expert_modules(recipe) or modules
    choices = [(none, 0, 0)] + [(selective, module_mask(m), 0) for m in modules]
    choices += [(full, 0, quarter) for quarter in range(BLOCKS)]
    modules_knob, blocks = (
        recipe.knobs.get("recompute_modules"),
        recipe.knobs.get("recompute_layers"),
    )
    if modules_knob:
        choices = [(selective, modules_knob.low, 0)]
    elif blocks:
        choices = [(full, 0, 0)] if blocks.low else [c for c in choices if not c[2]]
    elif not modules:
        choices += [(selective, module_mask(["core_attn"]), 0)] * ("recompute" in recipe.knobs)
    return [choice for choice in choices if recipe.allows("recompute", choice[0])]


def _accounts(recipe: Recipe) -> list[tuple[int, int]]:
    """(account_for_embedding, account_for_loss) pairs."""
    return [
        (embedding, loss)
        for embedding, loss in ((0, 0), (1, 1), (1, 0), (0, 1))
        if recipe.allows("account_for_embedding", embedding)
        and recipe.allows("account_for_loss", loss)
    ]


def _shardings(recipe: Recipe) -> list[tuple[int, int, int]]:
    """(zero, offload, hpz) choices. NVMe where the profile states its speed; hpZ copies the weights
    over the GPUs of a node.
    """
    every = recipe.software.sharding_stages
    stages = [z for z in every if z <= MAX_ZERO.get(recipe.framework, 3)] or list(every)
    if "zero" in recipe.knobs:
        stages = within(recipe, "zero", np.array(stages)).tolist()
    choices = [(zero, 0, 1) for zero in stages]
    if recipe.framework == "deepspeed":
        node = recipe.hardware.node
        kinds = ("cpu", "nvme") if node.nvme_gbytes_per_s else ("cpu",)
        places = [code for name, code in OFFLOAD_CODE.items() if name.endswith(kinds)]
        for zero in stages:
            reached = places if zero == 3 else places[: int(zero > 0)]
            choices += [(zero, code, 1) for code in reached]
        if 3 in stages and node.gpus < recipe.gpus:
            choices.append((3, 0, node.gpus))
    for name, at in (("offload", 1), ("hpz", 2)):
        kept = [choice for choice in choices if recipe.allows(name, choice[at])]
        if choices and not kept:  # as the question states it, for the rules to judge
            low = recipe.knobs[name].low
            kept = [(z, low, hpz) if at == 1 else (z, place, low) for z, place, hpz in choices]
        choices = kept
    return choices


def _sequence_ranks(recipe: Recipe) -> np.ndarray:
    """Megatron's ring for long sequences, or when the question asks for it; Ulysses inside a node
    by itself, where heads divide.
    """
    every = divisors(recipe.gpus)
    if "cp" in recipe.knobs:
        return within(recipe, "cp", every)
    if recipe.framework == "deepspeed":
        return every[every <= recipe.hardware.node.gpus]
    return sequence_ranks(recipe, every) if recipe.framework == "megatron" else np.array([1])


def candidates(recipe: Recipe) -> dict[str, np.ndarray]:
    """Values of the knobs that are varied, before they are combined."""
    node, layers = recipe.hardware.node, recipe.model.num_layers
    tp = divisors(recipe.model.num_heads)
    tp = tp[tp <= min(recipe.gpus, max(node.gpus, node.domain_gpus))]
    pp = divisors(recipe.gpus)
    v = np.unique(np.concatenate([divisors(layers + more) for more in range(3)]))
    v = v[v <= (layers if "interleaved" in recipe.software.schedules else 1)]
    mbs = divisors(recipe.global_batch_size)
    return {
        "tp": within(recipe, "tp", tp),
        "pp": within(recipe, "pp", pp[pp <= layers + 2]),
        "cp": _sequence_ranks(recipe),
        "mbs": within(recipe, "mbs", mbs[mbs <= MAX_MICRO_BATCH]),
        "v": within(recipe, "v", v),
        "sharding": np.arange(len(_shardings(recipe))),
        "account": np.arange(len(_accounts(recipe))),
        "recompute": np.arange(len(_recomputations(recipe))),
    }


def layouts(recipe: Recipe) -> Layouts:
    """All combinations as columns.

    dp and m follow from the GPUs and the batch; where they do not divide, a rule removes the row.
    What cannot differ is left out at once: more virtual stages than layers of a rank, interleaving
    without a pipeline, accounting where layers divide anyway.
    """
    values = candidates(recipe)
    grid = np.meshgrid(*values.values(), indexing="ij")
    knob = {name: column.ravel() for name, column in zip(values, grid, strict=True)}
    account = np.array(_accounts(recipe), int).reshape(-1, 2)[knob["account"]]
    uneven = account.sum(axis=1)
    even = (recipe.model.num_layers + uneven) // knob["pp"]
    divides = recipe.model.num_layers % knob["pp"] == 0
    forced = "account_for_embedding" in recipe.knobs or "account_for_loss" in recipe.knobs
    kept = ((knob["v"] == 1) | ((knob["pp"] > 1) & (even % knob["v"] == 0))) & (
        (uneven == 0) | ~divides | forced
    )
    first, last = _ends(recipe, knob["pp"], knob["v"], uneven)
    kept |= first > 0
    choice = np.array(_recomputations(recipe), int).reshape(-1, 3)[knob["recompute"]]
    part = -(-even * choice[:, 2] // (BLOCKS * knob["v"]))
    kept &= (choice[:, 2] == 0) | (part < even // knob["v"])
    columns = {name: knob[name][kept] for name in ("tp", "pp", "cp", "mbs", "v")}
    sharding = np.array(_shardings(recipe), int).reshape(-1, 3)[knob["sharding"][kept]]
    columns |= {name: sharding[:, at] for at, name in enumerate(("zero", "offload", "hpz"))}
    if first.any():
        columns |= {"first_layers": first[kept], "last_layers": last[kept]}
    experts = recipe.model.moe.num_experts if recipe.model.moe else 1
    row, ep, etp = expert_splits(recipe, columns, divisors(experts))
    columns = {name: column[row] for name, column in columns.items()} | {"ep": ep, "etp": etp}
    return _complete(recipe, columns, account[kept][row], choice[kept][row], part[kept][row])


def _ends(
    recipe: Recipe, pp: np.ndarray, v: np.ndarray, uneven: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Layers of first and last rank, where nothing else makes stages come out; none where the
    question says how it splits.
    """
    stated_ends = {
        "first_layers",
        "last_layers",
        "account_for_embedding",
        "account_for_loss",
    } & set(recipe.knobs)
    if stated_ends or recipe.framework != "megatron":
        return np.zeros_like(pp), np.zeros_like(pp)
    first, last = uneven_ends(recipe.model.num_layers, pp, v)
    return first * (uneven == 0), last * (uneven == 0)


def _recompute_layers(recipe: Recipe, choice: np.ndarray, part: np.ndarray) -> np.ndarray:
    knob = recipe.knobs.get("recompute_layers")
    full = choice[:, 0] == RECOMPUTE_CODE["full"]
    return np.where(full, knob.low, 0) if knob else np.where(choice[:, 2] > 0, part, 0)


def _schedules(recipe: Recipe, v: np.ndarray) -> np.ndarray:
    """1f1b or interleaved, as v says; another only when the question fixes it, for the rules to
    judge.
    """
    plain, interleaved = SCHEDULE_CODE["1f1b"], SCHEDULE_CODE["interleaved"]
    fixed = recipe.fixed("schedule")
    if fixed in (None, plain, interleaved):
        return np.where(v > 1, interleaved, plain)
    return np.full_like(v, fixed)


def _complete(
    recipe: Recipe,
    columns: dict[str, Any],
    account: np.ndarray,
    choice: np.ndarray,
    part: np.ndarray,
) -> Layouts:
    tp, pp = columns["tp"], columns["pp"]
    dp = np.maximum(recipe.gpus // (tp * pp * columns["cp"]), 1)
    m = np.maximum(recipe.global_batch_size // (dp * columns["mbs"]), 1)
    sp = within(recipe, "sp", np.array([int(recipe.software.sequence_parallel)]))
    fixed: dict[str, Any] = {name: recipe.fixed(name) for name in FIXED}
    fixed = {name: value for name, value in fixed.items() if value is not None}
    asked_schedule = recipe.fixed("schedule")
    chunks: tuple[int, int | None] = (1, None)
    if asked_schedule is not None:
        chunks = schedule(SCHEDULES[asked_schedule]).chunks
    layout = Layout(
        **columns,
        dp=dp,
        m=m,
        sp=int(sp[0]) * (tp > 1),
        account_for_embedding=account[:, 0],
        account_for_loss=account[:, 1],
        recompute=choice[:, 0],
        recompute_modules=choice[:, 1],
        recompute_layers=_recompute_layers(recipe, choice, part),
        schedule=_schedules(recipe, columns["v"]),
        **fixed,
    )
    allowed = (columns["v"] >= chunks[0]) & (columns["v"] <= (chunks[1] or columns["v"]))
    if layout.group:
        allowed &= columns["v"] > 1  # a group of micro-batches means nothing without virtual stages
    for name in ("dp", "m", "schedule", "sp"):
        allowed &= recipe.allows(name, getattr(layout, name))
    return layout[np.flatnonzero(allowed)]
