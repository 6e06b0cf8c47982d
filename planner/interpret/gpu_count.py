"""How many GPUs, of which kind: what the launcher, the batch or the degrees tell, and what has to
be asked for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.intake.reading import Reading, Unresolved, Value
from planner.interpret import layout_knobs
from planner.interpret.numbers import whole_number
from planner.specs import library
from planner.specs.names import fold
from planner.specs.resolve import CLUSTER


class Resolved(NamedTuple):
    """A value, where it is from, and what remains open about it."""

    value: Any
    origin: Value
    open: tuple[Unresolved, ...] = ()
    says: str = ""


MAX_GPUS = 2**20
SHARDS = "data_parallel_shard_degree"
NODE = 8
"""GPUs of a node that says nothing of them."""


def gpus(plain: dict[str, Any], reading: Reading, option: int | None) -> Resolved:
    """How many GPUs. option: --gpus. Raises InputError beyond what any machine has."""
    count = _gpus(plain, reading, option)
    if not 1 <= count.value <= MAX_GPUS:
        raise InputError(
            f"gpus must be from 1 to {MAX_GPUS:,}, but got {str(count.value)[:40]}; --gpus N"
            " restates it"
        )
    return count


def _gpus(plain: dict[str, Any], reading: Reading, option: int | None) -> Resolved:
    """--gpus; the launcher's count; nodes x GPUs a node; what the batch needs; the least that the
    degrees need.
    """
    if option is not None:
        return Resolved(option, Value(option, "option", "--gpus"))
    for name in ("launch.gpus", "launch.world_size"):
        if plain.get(name):
            count = whole_number(plain, name)
            return Resolved(count, replace(reading.values[name], value=count))
    each, nodes = (
        whole_number(plain, "launch.gpus_per_node", 0),
        whole_number(plain, "launch.nodes", 0),
    )
    count = 0 if each else degrees_gpus(plain, reading)
    if count:
        where = reading.values[SHARDS]
        return Resolved(
            count, Value(count, where.origin, f"{where.where}, times the other degrees")
        )
    if each:
        return _by_node(each, nodes, reading, _least(plain, reading))
    least = _least(plain, reading)
    if nodes:
        least = max(least, NODE * nodes)
    batch = whole_number(plain, "deepspeed.train_batch_size", 0)
    mbs = whole_number(plain, "deepspeed.train_micro_batch_size_per_gpu", 0)
    steps = whole_number(plain, "deepspeed.gradient_accumulation_steps", 0)
    count, why = least, "the parallel sizes need at least"
    if batch and mbs and steps and batch // (mbs * steps):
        count, why = batch // (mbs * steps) * least, "the batch needs"
    missing = Unresolved(
        "gpus",
        f"no GPU count in the file; {count} is what {why}; --gpus N supplies it",
        reading.file,
    )
    return Resolved(count, Value(count, "default", why), (missing,), f"gpus: {count}, what {why}")


def degrees_gpus(plain: dict[str, Any], reading: Reading) -> int:
    """torchtitan: the product of its degrees, which has to be the GPUs; 0 where a degree takes what
    is left (-1) or it is not torchtitan.

    Source: [torchtitan] distributed/parallel_dims.py.
    """
    shards = whole_number(plain, SHARDS, -1)
    if reading.kind != "torchtitan" or shards < 1:
        return 0
    replicas = max(whole_number(plain, "data_parallel_replicate_degree"), 1)
    return math.prod(layout_knobs.degrees(plain)) * shards * replicas


def _least(plain: dict[str, Any], reading: Reading) -> int:
    """GPUs that tp * pp * cp and etp * ep * pp both divide."""
    is_deepspeed = reading.framework == "deepspeed"
    degrees = layout_knobs.deepspeed_degrees if is_deepspeed else layout_knobs.degrees
    tp, pp, cp = degrees(plain)
    ep = whole_number(plain, "expert_model_parallel_size")
    etp = max(whole_number(plain, "expert_tensor_parallel_size", tp), 1)
    size = tp * pp * cp
    if ep > 1:
        size = math.lcm(size, etp * ep * pp)
    return min(size, MAX_GPUS)


def _by_node(each: int, nodes: int, reading: Reading, least: int) -> Resolved:
    where = reading.values["launch.gpus_per_node"]
    if nodes:
        return Resolved(
            each * nodes, Value(each * nodes, where.origin, f"{where.where}, {nodes} nodes")
        )
    questions = {question.name for question in reading.unresolved}
    if not questions & {"launch.nodes", "nnodes", "NNODES"}:
        return Resolved(each, Value(each, where.origin, where.where))
    count = min(math.lcm(each, least), MAX_GPUS)
    took = "one node" if count == each else f"{count // each:,} nodes, as the parallel sizes need"
    missing = Unresolved(
        "gpus",
        f"the number of nodes is not known; {took}, of {each} GPUs, taken; --gpus N supplies it",
        where.where,
    )
    return Resolved(
        count, Value(count, where.origin, where.where), (missing,), f"gpus: {count}, {took}"
    )


def hardware(plain: dict[str, Any], option: str | None, overrides: list[str]) -> Resolved:
    """--cluster; the GPU that the file names (an SBATCH constraint, say), where a profile has that
    name; this machine's; a default.
    """
    if option:
        return Resolved(library.hardware(option, overrides), Value(option, "option", "--cluster"))
    named = str(plain.get("launch.hardware") or "")
    profile = _profile(named) if named else None
    if profile:
        origin = Value(profile, "flag", f"launch.hardware {named}")
        return Resolved(library.hardware(profile, overrides), origin)
    local = library.local_cluster()
    name = local or CLUSTER
    why = "the GPUs of this machine" if local else "as the file names no GPU"
    missing = Unresolved(
        "cluster", f"the file does not say which GPUs; {name} is taken; --cluster NAME supplies it"
    )
    return Resolved(
        library.hardware(name, overrides),
        Value(name, "default", why),
        (missing,),
        f"cluster: {name}, {why}",
    )


def _profile(text: str) -> str | None:
    """The profile that a GPU's name means: as it is, or the first whose name begins with it."""
    wanted = fold(text)
    names = {name: fold(name) for name in library.clusters()}
    alike = [name for name, folded in names.items() if folded == wanted]
    if wanted and not alike:
        alike = [name for name, folded in names.items() if folded.startswith(wanted)]
    return min(alike, key=lambda name: ("sxm" not in name, name), default=None)
