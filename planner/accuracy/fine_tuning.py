"""Runs that fine-tune a model: adapters, and samples shorter than the sequence, where a row's own
page states them.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from planner.accuracy.shapes import Row, facts_of
from planner.specs.model import ModelSpec
from planner.specs.workload import TARGETS, Lora

PAGES = re.compile(r"NVIDIA/NeMo docs|Megatron-Bridge docs/performance")
"""Pages of performance recipes in `source_ref`: Megatron-Core as NeMo and Megatron-Bridge tune it.
"""
RANK = 32
"""Of adapters where a row states none: default of NeMo's and Megatron-Bridge's LoRA."""
SQUAD = 200
"""Tokens of a sample of SQuAD-v1.1: paragraph of 117 words, question of 10, answer of 3, some 1.4
tokens a word, and a prompt's frame.
"""
_TUNED = re.compile(r"\b(sft|lora)\b", re.I)


class Tuned(NamedTuple):
    model: ModelSpec
    lora: Lora | None
    mean_length: int | None
    """Tokens of a packed sample; None where samples are whole sequences."""


def of(row: Row, model: ModelSpec) -> tuple[Tuned, tuple[str, ...]]:
    """What a row trains, and what was assumed of it.

    NeMo's pages say that fine-tuning packs SQuAD-v1.1; their performance recipes adapt query, key
    and value alone, Megatron-Bridge's recipes all linears.
    """
    nemo = PAGES.search(str(row["source_ref"] or "")) is not None
    packed = SQUAD if nemo and _TUNED.search(str(row["model"] or "")) else None
    assumed: tuple[str, ...] = (
        (f"samples of {packed} tokens, packed: the page's SQuAD-v1.1",) if packed else ()
    )
    if not facts_of(row).frozen:
        return Tuned(model, None, packed), assumed
    targets: tuple[Any, ...] = ("qkv",) if nemo else TARGETS
    decoder = model.model_copy(update={"mtp_layers": 0}) if model.mtp_layers else model
    adapters = (
        f"lora_rank {RANK}, lora_targets {', '.join(targets)}: not stated, those of the recipes"
    )
    return Tuned(decoder, Lora(rank=RANK, targets=targets), packed), (*assumed, adapters)
