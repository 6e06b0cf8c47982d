"""Switches: what a training software may overlap and in what pieces it sends, by its own words. No
part of a layout: the same memory is split the same way, only the order and size of messages
change."""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import InputError, unknown

Value = bool | int
Switches = Mapping[str, Value]
"""What is set of them; of the others the software's defaults hold, or what the stack says that it
overlaps.
"""

WORDS: dict[str, dict[str, type]] = {
    "torch": {
        "overlap_reduce": bool,
        "bucket_cap_mb": int,
        "reduce_bucket_numel": int,
        "prefetch_layers": int,
    },
    "deepspeed": {
        "overlap_comm": bool,
        "contiguous_gradients": bool,
        "reduce_bucket_size": int,
        "allgather_bucket_size": int,
        "stage3_prefetch_bucket_size": int,
    },
    "megatron": {
        "overlap_grad_reduce": bool,
        "overlap_param_gather": bool,
        "overlap_p2p_comm": bool,
        "tp_comm_overlap": bool,
        "ddp_bucket_size": int,
    },
}
"""By software; torch is the torch benchmark: gradients reduced by DDP beside the backward pass or
after it, the size of its buckets (MiB), the size of buckets where gradients are reduced after the
pass (elements), and how many layers fully_shard gathers ahead."""
ZERO = ("stage3_prefetch_bucket_size", "prefetch_layers")
"""Sizes that may be 0."""
MAX_SIZE = 10**11


def check(switches: Switches, where: str) -> None:
    """Raises InputError for a switch that no framework has, or a value that it cannot take."""
    kinds = {word: kind for words in WORDS.values() for word, kind in words.items()}
    for word, value in switches.items():
        if word not in kinds:
            raise InputError(f"{where}: {unknown('switch', word, kinds)}")
        if kinds[word] is bool and not isinstance(value, bool):
            raise InputError(
                f"{where}: switches.{word} must be true or false, but got {str(value)[:40]}"
            )
        least = 0 if word in ZERO else 1
        if kinds[word] is int and (
            isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_SIZE
        ):
            raise InputError(
                f"{where}: switches.{word} must be a whole number from {least} to {MAX_SIZE:,}, but"
                f" got {str(value)[:40]}"
            )


def of(software: str, switches: Switches) -> dict[str, Value]:
    """The switches that a framework has."""
    return {word: value for word, value in switches.items() if word in WORDS.get(software, ())}


def text(switches: Switches) -> str:
    """The switches in one line: `overlap_comm off, reduce_bucket_size 50,000,000`."""
    shown = {
        word: ("on" if value else "off") if isinstance(value, bool) else f"{value:,}"
        for word, value in switches.items()
    }
    return ", ".join(f"{word} {value}" for word, value in shown.items())


def left_out(software: str, switches: Switches) -> tuple[str, ...]:
    """A line for a launch file about switches that another software was measured with; nothing when
    there are none.
    """
    others = {
        word: value for word, value in switches.items() if word not in WORDS.get(software, ())
    }
    whose = sorted({name for name, words in WORDS.items() if others.keys() & words.keys()})
    return (
        (
            (
                f"not written: {text(others)}, switches of {' and '.join(whose)} with which the"
                " plan was measured"
            ),
        )
        if others
        else ()
    )
