"""A measured run as documents: the Recipe, and the layouts that it may have been (one, when the row
states every knob).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from planner.accuracy import bridge, fine_tuning, run_software
from planner.accuracy.choices import layouts
from planner.accuracy.columns import COUNTS
from planner.accuracy.shapes import Row, facts_of, shape
from planner.accuracy.skipped import Skipped
from planner.errors import InputError
from planner.layout import Layout
from planner.specs import library
from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec
from planner.specs.question import from_words
from planner.specs.recipe import Recipe
from planner.specs.resolve import PRECISIONS, VERSIONS, operand, recipe_and_layout
from planner.specs.software import Software

NEEDED = ("hardware", "gpus", "tp", "pp", "seq", "gbs_sequences")
MAX_COUNT = 10**12
"""Larger counts belong to no training run, and would wrap in the products of a formula."""
CONTRADICTS = 0.25
"""A difference that rounding does not make."""
UNIT = 1024
"""Tokens of which a sequence length is a multiple that a row's speed may stand for."""
SPELLINGS = {
    "amp_bf16": "bf16",
    "bfloat16": "bf16",
    "amp_fp16": "fp16",
    "float16": "fp16",
    "float32": "fp32",
    "fp8-mx": "mxfp8",
    "fp8-cs": "fp8-tensorwise",
    "fp8-ds": "fp8-delayed",
    "fp8-sc": "fp8-blockwise",
    "fp4": "nvfp4",
}
HOMES = {("nanotron", "h100-sxm"): "aws-p5"}
"""Clusters with a network of their own, by software and GPU."""
ATTENTIONS = ("flash", "fused", "unfused")


@dataclass(frozen=True, slots=True)
class Run:
    """What the cost model needs of a measured run."""

    recipe: Recipe
    layouts: Layout
    """Columns: an entry for each layout that the row may mean."""
    open: tuple[str, ...]
    """Knobs that the row leaves open: the best of `layouts` decides."""
    assumed: tuple[str, ...]
    of_last: bool = False
    """Memory was measured on the last pipeline rank alone."""


def run(row: Row) -> Run:
    """The documents of one row. Rows that ask the same question share one Recipe object.

    Errors: Skipped with the reason why it cannot be predicted.
    """
    if row["question"] is not None:
        return _asked(str(row["question"]))
    row = _with_seq(row)
    _needed(row)
    model, assumed_model = shape(row)
    words, page = run_software.cells(row), str(row["source_ref"] or "")
    named = run_software.software_of(words)
    stack = run_software.built(named)
    changed = run_software.facts(words)
    machine, assumed_machine = _machine(row, stack)
    cluster = (machine, row["gpus_per_node"], row["node_net_gbytes_per_s"])
    hardware = _hardware(*cluster)
    precision, assumed_precision = _precision(row["precision"], hardware)
    changed = (*changed, *bridge.states(model.name, page, precision))
    attention, assumed_attention = _attention(row, stack)
    gpus, seq, batch = int(row["gpus"]), int(row["seq"]), int(row["gbs_sequences"])
    tuned, assumed_tuned = fine_tuning.of(row, model)
    recipe = _recipe(
        tuned.model, cluster, (named, changed), (gpus, seq, batch), precision, attention, tuned
    )
    choice = layouts(row, recipe)
    assumed = (
        *assumed_model,
        *named.assumed,
        *assumed_machine,
        *assumed_precision,
        *assumed_attention,
        *assumed_tuned,
        *choice.assumed,
    )
    columns = _counted(recipe, choice.layouts)
    return Run(recipe, columns, choice.open, assumed, bridge.of_last(page))


@lru_cache(maxsize=8192)
def _asked(words: str) -> Run:
    """A row that states its whole question with the layout, as a proof does."""
    try:
        recipe, layout = recipe_and_layout(from_words(json.loads(words)))
    except (InputError, ValueError, TypeError) as fault:
        raise Skipped(f"question: {str(fault)[:120]}") from None
    return Run(recipe, _column(layout), (), recipe.assumed)


def _column(layout: Layout) -> Layout:
    """One layout as columns of one entry. Skipped for a stage layout, which is no number."""
    if layout.stage_layout:
        raise Skipped("a stage layout is not compared")
    columns: dict[str, Any] = {}
    for field in fields(layout):
        if field.name != "stage_layout":
            columns[field.name] = np.array([getattr(layout, field.name)])
    return replace(layout, **columns)


def _counted(recipe: Recipe, columns: Layout) -> Layout:
    """The layers of first and last stage where the software deals out embedding, norm and head as
    if they were layers.
    """
    before, after = recipe.software.quirks.split_items
    if not before + after:
        return columns
    pp, items = np.asarray(columns.pp), recipe.model.num_layers + before + after
    first, last = -(-items // pp) - before, items // pp - after
    staged = (pp > 1) & (np.asarray(columns.v) == 1) & (first > 0) & (last > 0)
    return replace(columns, first_layers=first * staged, last_layers=last * staged)


def _with_seq(row: Row) -> Row:
    """The row with the sequence length that its tokens/s, step time and batch give, where it states
    none and they give a whole one. Skipped where it states another.
    """
    cells = [row[name] for name in ("tokens_per_s_per_gpu", "step_time_s", "gpus", "gbs_sequences")]
    if None in cells:
        return row
    tokens = cells[0] * cells[1] * cells[2] / cells[3]
    if row["seq"] is not None:
        if abs(tokens / row["seq"] - 1) > CONTRADICTS:
            raise Skipped("tokens/s, step time and batch give another sequence than it states")
        return row
    near = round(tokens / UNIT) * UNIT
    return {**row, "seq": near} if near and abs(tokens / near - 1) < 0.005 else row


def _needed(row: Row) -> None:
    for name in NEEDED:
        if row[name] is None:
            raise Skipped(f"{name} not stated")
    for name in COUNTS:
        value = row[name]
        if value is not None and not (1 <= value <= MAX_COUNT and value == int(value)):
            raise Skipped(f"{name} is no whole number of at least 1")
    if facts_of(row).offloaded:
        raise Skipped("which activations wait in host memory is not stated")


@lru_cache(maxsize=8192)
def _recipe(
    model: ModelSpec,
    cluster: tuple[Any, ...],
    software: Any,
    size: tuple[int, ...],
    precision: Any,
    attention: Any,
    tuned: fine_tuning.Tuned,
) -> Recipe:
    gpus, seq, batch = size
    stack = run_software.built(*software)
    return Recipe(
        model=model,
        hardware=_hardware(*cluster),
        software=stack,
        gpus=gpus,
        seq_length=seq,
        global_batch_size=batch,
        precision=precision,
        framework_version=VERSIONS[stack.framework],
        attention=attention,
        lora=tuned.lora,
        packing=tuned.mean_length is not None or None,
        mean_length=tuned.mean_length,
    )


def _machine(row: Row, stack: Software) -> tuple[str, tuple[str, ...]]:
    """The hardware named; where a row does not name its network, the cluster that the software's
    published runs were made on.
    """
    name = str(row["hardware"])
    home = HOMES.get((stack.name, name))
    if home is None or row["interconnect"] is not None:
        return name, ()
    return home, (f"hardware {home}: where published runs of {stack.name} on {name} were made",)


@lru_cache(maxsize=1024)
def _hardware(name: str, node_gpus: float | None, node_net: float | None) -> HardwareProfile:
    """The profile, with the node that the row describes."""
    try:
        profile = library.hardware(name)
    except InputError:
        raise Skipped(f"unknown hardware: {name[:60]}") from None
    node, fabric = profile.node, profile.fabric
    if node_gpus and int(node_gpus) != node.gpus:
        gpus = int(node_gpus)
        domain = node.domain_gpus if node.domain_gpus > node.gpus else min(node.domain_gpus, gpus)
        nested = gpus % domain == 0 or domain % gpus == 0
        node = node.model_copy(
            update={"gpus": gpus, "domain_gpus": domain if nested else gcd(domain, gpus)}
        )
    if node_net:
        fabric = fabric.model_copy(update={"nic_gbytes_per_s": node_net / fabric.nics})
    return profile.model_copy(update={"node": node, "fabric": fabric})


def _precision(cell: str | None, hardware: HardwareProfile) -> tuple[str, tuple[str, ...]]:
    """The recipe of numbers; `fp8` alone leaves it open: delayed scaling on Hopper and Ada, whole
    tensors' current scale later.
    """
    peaks = hardware.gpu.peak_tflops
    if cell is None:
        usual = "bf16" if "bf16" in peaks else "fp16"
        return usual, (f"precision {usual}: not stated",)
    name = SPELLINGS.get(cell.lower(), cell.lower())
    assumed: tuple[str, ...] = ()
    if name == "fp8":
        name = "fp8-delayed" if hardware.gpu.compute_capability < 10 else "fp8-tensorwise"
        assumed = (f"precision {name}: fp8 without its recipe",)
    if name not in PRECISIONS:
        raise Skipped(f"unknown precision: {cell[:60]}")
    if operand(name) not in peaks:
        raise Skipped(f"{hardware.name} does not compute {operand(name)}")
    return name, assumed


def _attention(row: Row, stack: Software) -> tuple[str, tuple[str, ...]]:
    """The kernel of the cell."""
    cell = row["attention"]
    if cell is None:
        return stack.attention, (f"attention {stack.attention}: that of the stack",)
    name = cell.lower()
    if name not in ATTENTIONS:
        raise Skipped(f"unknown attention: {cell[:60]}")
    return name, ()
