"""The switch of torch's allocator that every framework has."""

from __future__ import annotations

from planner.specs.switches.switch import Plain, Spelling, Switch, Value

ALLOCATORS = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")


def expandable_segments(plain: Plain) -> bool:
    """Whether a variable of torch's allocator turns them on."""
    settings = ",".join(str(plain.get(name) or "") for name in ALLOCATORS)
    return "expandable_segments:true" in settings.lower().replace(" ", "")


def _read_segments(plain: Plain) -> Value | None:
    return True if expandable_segments(plain) else None


EXPANDABLE_SEGMENTS = Switch(
    "expandable_segments",
    "The allocator grows its segments (PYTORCH_CUDA_ALLOC_CONF).",
    (False, True),
    False,
    "same",
    (
        Spelling(False),
        Spelling(True, environment=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)),
    ),
    "leaves less of the reserved memory unused",
    "NeMo's runs, which use it: fragmentation 0.02, others 0.05; Megatron-Bridge memory tuning",
    read=_read_segments,
)
