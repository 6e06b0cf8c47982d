"""What the notes of a run say that a prediction needs: words that no column has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Facts:
    not_decoder: bool
    """The model is no decoder-only language model."""
    frozen: bool
    """Only adapters are trained."""
    hybrid: bool
    """Layers other than attention and MLP."""
    offloaded: bool
    """Activations live in the host's memory."""
    optimizer_away: bool
    """The optimizer's states do, and are updated there."""
    head_dim: int | None
    """Where it is not hidden size over heads."""
    one_less: bool
    """First and last pipeline stage have one layer fewer."""


_NOT_DECODER = re.compile(r"\bm?t5\b|\bbert\b|diffusion|not an llm|\bclip\b|\bvit\b|imagen", re.I)
_FROZEN = re.compile(r"\blora\b|\bpeft\b", re.I)
_HYBRID = re.compile(
    r"hybrid (mamba|linear|moe)|mamba|linear"
    r" attention|\bgdn|\bkda\b|qwen3-next|nemotron-?(3(?!\d)|h\b)",
    re.I,
)
_OFFLOADED = re.compile(r"activation offload|act_offload=true", re.I)
_OPTIMIZER_AWAY = re.compile(r"cpu[\w ]*offload|offload\w*[\w ]* cpu", re.I)
_HEAD_DIM = re.compile(r"head_dim (\d+)")


@lru_cache(maxsize=8192)
def facts(model: str, notes: str) -> Facts:
    """Read from the model's name and the notes; what concerns the kind of model is looked for in
    both.
    """
    text = f"{model}; {notes}"
    head_dim = _HEAD_DIM.search(notes)
    return Facts(
        not_decoder=_NOT_DECODER.search(model) is not None or "not an LLM" in notes,
        frozen=_FROZEN.search(text) is not None,
        hybrid=_HYBRID.search(text) is not None,
        offloaded=_OFFLOADED.search(notes) is not None,
        optimizer_away=_OPTIMIZER_AWAY.search(notes) is not None,
        head_dim=int(head_dim[1]) if head_dim else None,
        one_less="first and last stage have one layer fewer" in notes,
    )
