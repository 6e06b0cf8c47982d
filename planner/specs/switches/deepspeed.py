"""Switches of DeepSpeed: keys of zero_optimization, which the cost model gives no effect; tune
measures them.
"""

from __future__ import annotations

from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.switch import Spelling, Switch

SOURCE = "DeepSpeed runtime/zero/config.py"


def _key(name: str, help: str, default: bool | int, says: str, lowest: int = 1) -> Switch:
    values = (False, True) if isinstance(default, bool) else ()
    spelling = Spelling(default)
    return Switch(name, help, values, default, "same", (spelling,), says, SOURCE, lowest=lowest)


SWITCHES = (
    _key(
        "overlap_comm",
        "Gradients are reduced beside the backward pass.",
        False,
        "hides the reduction, and holds two buckets",
    ),
    _key(
        "contiguous_gradients",
        "Gradients are copied into one buffer as they come.",
        True,
        "fragments less",
    ),
    _key(
        "reduce_bucket_size", "Elements that are reduced at once.", 500_000_000, "size of messages"
    ),
    _key(
        "allgather_bucket_size",
        "Elements of updated parameters that are gathered at once.",
        500_000_000,
        "size of messages",
    ),
    _key(
        "stage3_prefetch_bucket_size",
        "Elements that zero 3 fetches ahead.",
        50_000_000,
        "hides gathers, and holds what is fetched",
        lowest=0,
    ),
    EXPANDABLE_SEGMENTS,
)
