"""How many GPUs, of which kind: what the launcher, the batch or the degrees tell, and what has to
be asked for.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.intake.reading import Reading, Unresolved, Value
from planner.interpret import layout_knobs
from planner.interpret.numbers import whole
from planner.specs import library
from planner.specs.resolve import CLUSTER


class Told(NamedTuple):
    """A value, where it is from, and what remains open about it."""

    value: Any
    origin: Value
    open: tuple[Unresolved, ...] = ()
    says: str = ""


MAX_GPUS = 2**20
SHARDS = "data_parallel_shard_degree"
NODE = 8
"""GPUs of a node that says nothing of them."""


def gpus(plain: dict[str, Any], reading: Reading, stated: int | None) -> Told:
    """How many GPUs; InputError beyond what any machine has."""
    told = _gpus(plain, reading, stated)
    if not 1 <= told.value <= MAX_GPUS:
        raise InputError(
            f"gpus must be from 1 to {MAX_GPUS:,}, but got {str(told.value)[:40]}; --gpus N"
            " restates it"
        )
    return told


def _gpus(plain: dict[str, Any], reading: Reading, stated: int | None) -> Told:
    """--gpus; the launcher's count; nodes x GPUs a node; what the batch needs; the least that the
    degrees need.
    """
    if stated is not None:
        return Told(stated, Value(stated, "option", "--gpus"))
    for name in ("launch.gpus", "launch.world_size"):
        if plain.get(name):
            count = whole(plain, name)
            return Told(
                count, Value(count, reading.values[name].origin, reading.values[name].where)
            )
    each, nodes = whole(plain, "launch.gpus_per_node", 0), whole(plain, "launch.nodes", 0)
    if not each and (count := degrees_gpus(plain, reading)):
        where = reading.values[SHARDS]
        return Told(count, Value(count, where.origin, f"{where.where}, times the other degrees"))
    if each:
        return _by_node(each, nodes, reading, _least(plain))
    least = _least(plain)
    if nodes:
        least = max(least, NODE * nodes)
    batch = [
        whole(plain, f"deepspeed.{name}", 0)
        for name in (
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
        )
    ]
    by_batch = batch[0] // (batch[1] * batch[2]) * least if all(batch) else 0
    count = by_batch or least
    why = "the batch needs" if by_batch else "the parallel sizes need at least"
    missing = Unresolved(
        "gpus",
        f"no GPU count in the file; {count} is what {why}; --gpus N supplies it",
        reading.file,
    )
    return Told(count, Value(count, "default", why), (missing,), f"gpus: {count}, what {why}")


def degrees_gpus(plain: dict[str, Any], reading: Reading) -> int:
    """torchtitan: the product of its degrees, which has to be the GPUs; 0 where a degree takes what
    is left (-1) or it is not torchtitan.

    Source: [torchtitan] distributed/parallel_dims.py.
    """
    shards = whole(plain, SHARDS, -1)
    if reading.kind != "torchtitan" or shards < 1:
        return 0
    return (
        math.prod(layout_knobs.degrees(plain))
        * shards
        * max(whole(plain, "data_parallel_replicate_degree"), 1)
    )


def _least(plain: dict[str, Any]) -> int:
    """GPUs that tp * pp * cp and etp * ep * pp both divide."""
    tp, pp, cp = layout_knobs.degrees(plain)
    ep, etp = (
        whole(plain, "expert_model_parallel_size"),
        max(whole(plain, "expert_tensor_parallel_size", tp), 1),
    )
    return min(math.lcm(tp * pp * cp, etp * ep * pp if ep > 1 else 1), MAX_GPUS)


def _by_node(each: int, nodes: int, reading: Reading, least: int) -> Told:
    where = reading.values["launch.gpus_per_node"]
    if nodes:
        return Told(
            each * nodes, Value(each * nodes, where.origin, f"{where.where}, {nodes} nodes")
        )
    waiting = any(
        question.name in ("launch.nodes", "nnodes", "NNODES") for question in reading.unresolved
    )
    if not waiting:
        return Told(each, Value(each, where.origin, where.where))
    count = min(math.lcm(each, least), MAX_GPUS)
    took = "one node" if count == each else f"{count // each:,} nodes, as the parallel sizes need"
    missing = Unresolved(
        "gpus",
        f"the number of nodes is not known; {took}, of {each} GPUs, taken; --gpus N supplies it",
        where.where,
    )
    return Told(
        count, Value(count, where.origin, where.where), (missing,), f"gpus: {count}, {took}"
    )


def hardware(plain: dict[str, Any], stated: str | None, overrides: list[str]) -> Told:
    """--cluster; the GPU that the file names (an SBATCH constraint, say), where a profile has that
    name; this machine's; a default.
    """
    if stated:
        return Told(library.hardware(stated, overrides), Value(stated, "option", "--cluster"))
    named = str(plain.get("launch.hardware") or "")
    if named:
        found = _named(named)
        if found:
            return Told(
                library.hardware(found, overrides), Value(found, "flag", f"launch.hardware {named}")
            )
    local = library.local_cluster()
    name = local or CLUSTER
    why = "the GPUs of this machine" if local else "as the file names no GPU"
    missing = Unresolved(
        "cluster", f"the file does not say which GPUs; {name} is taken; --cluster NAME supplies it"
    )
    return Told(
        library.hardware(name, overrides),
        Value(name, "default", why),
        (missing,),
        f"cluster: {name}, {why}",
    )


def _named(text: str) -> str | None:
    """The profile that a GPU's name means: as it is, or the first whose name begins with it."""
    wanted = library.fold(text)
    names = library.clusters()
    alike = [name for name in names if library.fold(name) == wanted] or [
        name for name in names if library.fold(name).startswith(wanted)
    ]
    return min(alike, key=lambda name: ("sxm" not in name, name)) if alike and wanted else None
