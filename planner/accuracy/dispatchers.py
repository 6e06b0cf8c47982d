"""What the notes of a run say of its experts: how tokens travelled, what hid that, what launched
it. Words that no column has.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from planner.specs import library
from planner.specs.software import Software
from planner.specs.switches.switch import Value
from planner.specs.switches.table import BY_FRAMEWORK, with_switches

Facts = tuple[tuple[str, Any], ...]
"""Switches of a run, and figures of its software by dotted name, that the notes change."""

_DISPATCHERS = (
    ("hybridep", re.compile(r"hybrid-?ep", re.I)),
    ("deepep", re.compile(r"deep-?ep", re.I)),
    ("alltoall", re.compile(r"dispatcher (?:A2A|alltoall)|all-to-all dispatcher", re.I)),
)
_MODULES = re.compile(
    r"recompute(?: modules:)?"
    r" ((?:norm|layernorm|moe_act|act|moe|shared_experts?|mla_up_proj)(?:[,+]\w+)*)",
    re.I,
)
_WORDS = {"norm": "layernorm", "act": "moe_act", "shared_expert": "shared_experts"}
_OVERLAPPED = re.compile(r"(?:A2A|EP) overlap|(?:ep_overlap|parallel_comm)=(?:True|on)", re.I)
_GRAPHED = re.compile(r"CUDA graph|cuda_graph=|\bCG\b")
_GRAPHED_WHOLE = re.compile(r"cuda_graph=full_iteration|full CG")
_REAL = re.compile(r"real routing", re.I)
_DROPPED = "tokendrop"
"""In a model's name, of NeMo's pages: moe_expert_capacity_factor 1 and padding, which DeepEP
refuses."""
_STEP = re.compile(r"cumulative optimization step (\d+)")
ROUTING = Path(__file__).with_name("routing.yaml")
"""Figures for what notes say in words alone, each with its source."""


@lru_cache(maxsize=1)
def routing() -> dict[str, float]:
    """The figures of routing.yaml by name."""
    return {
        name: float(figure["value"])
        for name, figure in yaml.safe_load(ROUTING.read_text(encoding="utf-8")).items()
    }


def software_of(name: str | None, notes: str, page: str) -> str | None:
    """The stack of a run of Megatron-Core with experts: NeMo's by the container, others by the
    optimizations that their notes count.
    """
    if "Megatron-Bridge docs/performance" in page:
        return "nemo" if "container 25.11" in page else "nemo-2025"
    if _STEP.search(notes):
        return "megatron"
    return "nemo" if "performance item" in notes or _OVERLAPPED.search(notes) else name


def settings(notes: str, page: str, hardware: str) -> dict[str, Value]:
    """The switches that the notes state.

    Cards of Megatron-Bridge list what their recipes set: an item that names no dispatcher has
    Megatron's, an all-to-all; one that names no CUDA graph has none. Container 25.11 outside NVL72
    racks is taken to send tokens by NCCL: no page says so, its runs there are as much slower than
    those of 25.09 as the host's waits of an all-to-all.
    """
    out: dict[str, Value] = {}
    dispatcher = next((name for name, words in _DISPATCHERS if words.search(notes)), None)
    if dispatcher is None and (
        "performance item" in notes
        or _DROPPED in notes
        or ("container 25.11" in page and "nvl72" not in hardware)
    ):
        dispatcher = "alltoall"
    if dispatcher:
        out["moe_dispatcher"] = dispatcher
    if _OVERLAPPED.search(notes):
        out["overlap_moe_expert_parallel_comm"] = True
    if _GRAPHED.search(notes):
        out["cuda_graph"] = "full_iteration" if _GRAPHED_WHOLE.search(notes) else "layers"
    step = _STEP.search(notes)
    for first, switched in CUMULATIVE.items():
        if step and int(step[1]) >= first:
            out |= switched
    return out


CUMULATIVE: dict[int, dict[str, Value]] = {
    2: {"moe_router_fusion": True},
    3: {"moe_dispatcher": "deepep"},
    5: {"cuda_graph": "layers"},
    10: {"moe_dispatcher": "hybridep"},
}
"""What each of the cumulative optimizations of DeepSeek-V3 on GB200 turns on, where it is a switch:
the others are versions of the software, or bind processes to processors.
"""


@lru_cache(maxsize=4096)
def facts(notes: str, page: str, hardware: str) -> Facts:
    """The switches of the notes, and figures of the software that no switch decides, sorted."""
    out: dict[str, Any] = dict(settings(notes, page, hardware))
    if _DROPPED in notes:
        out |= {"experts.capacity_factor": 1.0, "experts.padded": True}
    if "over UCCL" in notes:
        out["experts.proxy"] = "uccl"
    if _REAL.search(notes):
        out["experts.imbalance"] = routing()["unbalanced"]
    return tuple(sorted(out.items()))


UP_PROJECTED = 4
"""Of the same the one from which latent attention's up-projection is no longer repeated."""


def modules(notes: str) -> tuple[str, ...]:
    """What selective recomputation repeats, in Megatron's words."""
    step = _STEP.search(notes)
    if step:
        return ("mlp", "mla_up_proj") if int(step[1]) < UP_PROJECTED else ("mlp", "moe_act")
    match = _MODULES.search(notes)
    words = re.split(r"[,+]", match[1].lower()) if match else []
    return tuple(_WORDS.get(word, word) for word in words)


@lru_cache(maxsize=256)
def document(name: str, changed: Facts) -> Software:
    """The stack of that name, with what the notes say of its experts and the page of its
    numbers.
    """
    stack = library.stack(name)
    switches = BY_FRAMEWORK[stack.framework]
    stack = with_switches(stack, {field: value for field, value in changed if field in switches})
    return stack.with_figures({path: value for path, value in changed if path not in switches})
