"""What the notes of a run say that selective recomputation repeats."""

from __future__ import annotations

import re

_MODULES = re.compile(
    r"recompute(?: modules:)?"
    r" ((?:norm|layernorm|moe_act|act|moe|shared_experts?|mla_up_proj)(?:[,+]\w+)*)",
    re.I,
)
_WORDS = {"norm": "layernorm", "act": "moe_act", "shared_expert": "shared_experts"}
_STEP = re.compile(r"cumulative optimization step (\d+)")
UP_PROJECTED = 4
"""Of the cumulative optimizations of DeepSeek-V3 on GB200 the one from which latent attention's
up-projection is no longer repeated."""


def modules(notes: str) -> tuple[str, ...]:
    """The modules, in Megatron's words."""
    step = _STEP.search(notes)
    if step:
        return ("mlp", "mla_up_proj") if int(step[1]) < UP_PROJECTED else ("mlp", "moe_act")
    match = _MODULES.search(notes)
    words = re.split(r"[,+]", match[1].lower()) if match else []
    return tuple(_WORDS.get(word, word) for word in words)
