"""Switches of the torch benchmark, which the cost model gives no effect; tune measures them."""

from __future__ import annotations

from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.switch import Spelling, Switch

SOURCE = "planner.tune.benchmark.training"
SWITCHES = (
    Switch(
        "overlap_reduce",
        "Gradients are reduced by DDP beside the backward pass, or after it.",
        (False, True),
        True,
        "same",
        (Spelling(False), Spelling(True)),
        "hides the reduction",
        SOURCE,
    ),
    Switch(
        "bucket_cap_mb",
        "MiB of a bucket of DDP.",
        (),
        25,
        "same",
        (Spelling(25),),
        "size of messages",
        SOURCE,
    ),
    Switch(
        "reduce_bucket_numel",
        "Elements of a bucket where gradients are reduced after the backward pass.",
        (),
        64 * 2**20,
        "same",
        (Spelling(64 * 2**20),),
        "size of messages",
        SOURCE,
    ),
    Switch(
        "prefetch_layers",
        "Layers that fully_shard gathers ahead.",
        (),
        0,
        "same",
        (Spelling(0),),
        "hides gathers, and holds what is fetched",
        SOURCE,
        lowest=0,
    ),
    Switch(
        "moe_dispatcher",
        "How tokens reach their experts: alltoall, deepep or hybridep.",
        ("alltoall", "deepep", "hybridep"),
        "alltoall",
        "reassociated",
        (Spelling("alltoall"),),
        "the libraries send a token once to each NVLink domain; published runs have them, the files"
        " that are written do not yet",
        "torchtitan 0.2.2: expert_parallel_comm_backend",
    ),
    EXPANDABLE_SEGMENTS,
)
