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
from planner.specs.stack import Stack

Facts = tuple[tuple[str, Any], ...]
"""Fields of a stack, or of its experts, that the notes change."""

_DISPATCHERS = (
    ("hybridep", re.compile(r"hybrid-?ep", re.I)),
    ("deepep", re.compile(r"deep-?ep", re.I)),
    ("alltoall", re.compile(r"dispatcher A2A|all-to-all dispatcher", re.I)),
)
LIKE = {"alltoall": "megatron", "deepep": "nemo", "hybridep": "nemo"}
"""The stack that waits for a dispatcher's counts as a run that names the dispatcher does."""
_MODULES = re.compile(
    r"recompute(?: modules:)?"
    r" ((?:norm|layernorm|moe_act|act|moe|shared_experts?|mla_up_proj)(?:[,+]\w+)*)",
    re.I,
)
_WORDS = {"norm": "layernorm", "act": "moe_act", "shared_expert": "shared_experts"}
_OVERLAPPED = re.compile(r"A2A overlap|ep_overlap=True", re.I)
_GRAPHED = re.compile(r"CUDA graph|cuda_graph=")
_REAL = re.compile(r"real routing", re.I)
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
    step = _STEP.search(notes)
    if step:
        return "nemo" if int(step[1]) >= GRAPHS else "megatron"
    if "performance item" in notes:
        return "megatron-bridge" if _GRAPHED.search(notes) else "nemo"
    return "megatron-bridge" if _OVERLAPPED.search(notes) else name


GRAPHS = 5
"""Of the cumulative optimizations of DeepSeek-V3 on GB200 the one that brings CUDA graphs."""


@lru_cache(maxsize=4096)
def facts(notes: str, page: str, hardware: str) -> Facts:
    """Fields of stack.experts as the notes have them, sorted.

    Cards of Megatron-Bridge list what their recipes set: an item that names no dispatcher has
    Megatron's, an all-to-all, whose counts the host waits for under an overlap too; one that names
    no CUDA graph has none. Container 25.11 outside NVL72 racks is taken to send tokens by NCCL: no
    page says so, its runs there are as much slower than those of 25.09 as the host's waits of an
    all-to-all.
    """
    out: dict[str, Any] = {}
    dispatcher = next((name for name, words in _DISPATCHERS if words.search(notes)), None)
    if dispatcher is None and (
        "performance item" in notes or ("container 25.11" in page and "nvl72" not in hardware)
    ):
        dispatcher = "alltoall"
    if dispatcher:
        out |= {
            "dispatcher": dispatcher,
            "wait_us": library.stack(LIKE[dispatcher]).experts.wait_us,
        }
    if _OVERLAPPED.search(notes):
        out["overlap_share"] = routing()["hidden_share"]
    if _GRAPHED.search(notes) or (_OVERLAPPED.search(notes) and dispatcher != "alltoall"):
        out["wait_us"] = 0.0
    if _REAL.search(notes):
        out["imbalance"] = routing()["unbalanced"]
    return tuple(sorted(out.items()))


def modules(notes: str) -> tuple[str, ...]:
    """What selective recomputation repeats, in Megatron's words."""
    match = _MODULES.search(notes)
    words = re.split(r"[,+]", match[1].lower()) if match else []
    return tuple(_WORDS.get(word, word) for word in words)


@lru_cache(maxsize=256)
def document(name: str, changed: Facts) -> Stack:
    """The stack of that name, with what the notes say of its experts and the page of its
    numbers.
    """
    stack = library.stack(name)
    own: dict[str, Any] = {}
    of_experts: dict[str, Any] = {}
    for field, value in changed:
        of_stack = field in Stack.model_fields
        if getattr(stack if of_stack else stack.experts, field) != value:
            (own if of_stack else of_experts)[field] = value
    if of_experts:
        own["experts"] = stack.experts.model_copy(update=of_experts)
    return stack.model_copy(update=own) if own else stack
