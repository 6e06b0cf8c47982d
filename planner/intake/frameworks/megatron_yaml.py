"""YAML whose keys are Megatron's flags (its functional tests), and the configuration of
`--yaml-cfg`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from planner.intake.documents.tree import Leaf, location
from planner.intake.frameworks.megatron_flags import flags
from planner.intake.frameworks.vocabulary import Named, doubted, make_reading, named
from planner.intake.reading import Reading

SECTIONS = ("MODEL_ARGS", "ENV_VARS", "language_model", "model_parallel")
RENAMED = {
    "num_moe_experts": "num_experts",
    "layernorm_epsilon": "norm_epsilon",
    "fp8": "fp8_format",
    "persist_layer_norm": "persist_layer_norm",
}
"""Names of TransformerConfig's fields that differ from the arguments'. Source: [megatron-core]
training/arguments.py.
"""
LAUNCH = {
    "WORLD_SIZE": "launch.gpus",
    "GPUS_PER_NODE": "launch.gpus_per_node",
    "NNODES": "launch.nodes",
    "NUM_NODES": "launch.nodes",
}


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """Values under Megatron's argument names, whether the keys are flags (`--num-layers: 24`) or
    arguments in sections.
    """
    written = any(part.startswith("--") for leaf in leaves for part in leaf.path)
    flat, near = doubted(chain.from_iterable(map(names, leaves)), exact=written)
    return make_reading(file, "megatron-yaml", "megatron", flat, notes=[*notes, *near])


def argument(name: str) -> str:
    """The argument of a flag: no leading dashes, underscores within."""
    return name.lstrip("-").replace("-", "_")


def names(leaf: Leaf) -> list[Named]:
    section, rest = leaf.path[0], leaf.path[1:]
    if section == "ENV_VARS" and rest:
        name = rest[0]
        moved = replace(leaf, where=location(leaf))
        out = [named(f"env.{name}", moved)]
        if name in LAUNCH:
            out.append(named(LAUNCH[name], moved))
        return out
    if section in ("MODEL_ARGS", "language_model", "model_parallel") and rest:
        if len(rest) == 1:
            return _argument(argument(rest[0]), leaf)
        return _argument(".".join(rest), leaf)
    if rest or section in (
        "TEST_TYPE",
        "LAUNCHER",
        "MODE",
        "BEFORE_SCRIPT",
        "AFTER_SCRIPT",
        "METRICS",
    ):
        return [named(".".join(leaf.path), leaf)]
    return _argument(argument(section), leaf)


def _argument(name: str, leaf: Leaf) -> list[Named]:
    if leaf.path[-1].startswith("--") and isinstance(leaf.value, bool):
        flag = flags().get("--" + name.replace("_", "-"))
        if flag is not None and flag.kind == "false":
            return [Named(flag.dest, leaf, not leaf.value)]
    out = [named(RENAMED.get(name, name), leaf)]
    if name == "activation_func" and str(leaf.value) == "swiglu":
        out.append(Named("swiglu", leaf, True))
    return out
