"""Switches that a file turns on and that no figure here counts (specs/switches/not_modelled.yaml):
named, so that nobody takes the answer for theirs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.advice.findings import Finding
from planner.advice.flag_names import flag
from planner.intake.frameworks.megatron_flags import flags
from planner.intake.frameworks.torchtitan import RENAMED
from planner.interpret.interpret import Launch
from planner.specs.switches.table import not_modelled

COUNTED = frozenset(
    {
        "moe_grouped_gemm",
        "moe_layer_recompute",
        "moe_pad_expert_input_to_capacity",
        "memory_efficient_linear",
        "average_in_collective",
        "ddp_average_in_collective",
    }
)
"""Turned on they are what is counted, or what our own files write."""
HEAVY = {
    "batch_invariant_mode": "",
    "deterministic_mode": "",
    "first_last_layers_bf16": "",
    "use_kitchen_attention": "",
    "moe_paged_stash": "",
    "outer_dp_sharding_strategy": "no_shard",
    "tensor_parallel_num_weight_shards": 1,
    "expert_tensor_parallel_num_weight_shards": 1,
    "moe_expert_rank_capacity_factor": None,
    "mlp_chunks_for_training": 1,
    "zenflow": None,
    "mics_shard_size": -1,
    "deepcompile": False,
    "activation_checkpointing.cpu_checkpointing": False,
    "optimizer_cpu_offload": False,
    "fsdp_offload_params": False,
    "memory_budget": None,
}
"""Those that move time or memory by more than the range of an answer, with the value that turns
them off.
"""
GROUPED = {"zenflow"}
"""Groups of keys: any of them turns the group on."""
NAMED = 6


def findings(launch: Launch) -> list[Finding]:
    """What is stated and not counted: a warning for what may change the answer, a hint for the
    rest.
    """
    stated = _stated(launch)
    heavy = [name for name in stated if stated[name] in HEAVY]
    light = [name for name in stated if stated[name] not in HEAVY]
    found = []
    if heavy:
        text = f"{_listed(launch, heavy, stated)}; time and memory here are those without"
        found.append(Finding("warning", "not priced", text))
    if light:
        found.append(Finding("hint", "not priced, and small", _listed(launch, light, stated)))
    return found


def _listed(launch: Launch, names: list[str], stated: dict[str, str]) -> str:
    """The names as the file writes them, and where the reason stands."""
    shown = ", ".join(_written(launch.reading.kind, name) for name in names[:NAMED])
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{shown}{more}: read, but not priced (`ppplan switches {stated[names[0]]}`)"


def _written(kind: str, name: str) -> str:
    own = {ours: theirs for theirs, ours in RENAMED.items()} if kind == "torchtitan" else {}
    return own.get(name) or flag(kind, name)


def _stated(launch: Launch) -> dict[str, str]:
    """Names in Reading.values of what is turned on, and the names by which it is not modelled."""
    reading = launch.reading
    known = [name for names in not_modelled()[reading.framework] for name in names.split(", ")]
    out: dict[str, str] = {}
    for name in known:
        if name in COUNTED:
            continue
        for key, value in reading.values.items():
            if value.value == name or (_is(name, key) and _on(name, value.value)):
                out[key] = name
                break
    if _shares_replicas(launch):
        out["num_distributed_optimizer_instances"] = "outer_dp_sharding_strategy"
    return out


def _is(name: str, key: str) -> bool:
    if name in GROUPED:
        return f".{name}." in key
    return key == name or key.endswith(f".{name}")


def _on(name: str, value: Any) -> bool:
    """Whether a value turns a switch on, or one off that is on by default. Of other numbers and
    words nobody can tell what is usual.
    """
    if name in GROUPED:
        return True
    if name in HEAVY:
        return value not in (HEAVY[name], None, False, "")
    return value is (name not in _on_by_default())


@cache
def _on_by_default() -> frozenset[str]:
    """What Megatron-LM has flags to turn off alone."""
    kinds: dict[str, set[str]] = {}
    for each in flags().values():
        kinds.setdefault(each.dest, set()).add(each.kind)
    return frozenset(name for name, found in kinds.items() if found == {"false"})


def _shares_replicas(launch: Launch) -> bool:
    """Megatron-FSDP shards within each of several copies."""
    copies = launch.plain.get("num_distributed_optimizer_instances")
    return (
        launch.recipe.framework == "megatron"
        and launch.layout.zero >= 2
        and isinstance(copies, int)
        and copies > 1
    )
