"""Switches of Megatron-LM's pipeline and data parallelism that move work or split states.

Source of flags, defaults, needs and refusals: [megatron-core] core/model_parallel_config.py,
core/parallel_state.py, core/distributed/distributed_data_parallel_config.py, training/arguments.py
of 0.14 to 0.19.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Need, Plain, Spelling, Switch, Value, copies, setting


def _pipelined(recipe: Recipe, layout: Layouts) -> Mask:
    return layout.pipelined


def _defers(recipe: Recipe, layout: Layouts) -> Mask:
    return layout.pipelined & bool(setting(recipe, "defer_embedding_wgrad_compute", False))


def _whole_gradients(layout: Layouts) -> Mask:
    """No FSDP, Megatron's or torch's, shards them."""
    return ~layout.sharded(2)


def _accumulates(recipe: Recipe, layout: Layouts) -> Mask:
    """Products add to the main gradient, which FSDP has not whole."""
    return _whole_gradients(layout) & bool(setting(recipe, "gradient_accumulation_fusion", True))


def _distributed(recipe: Recipe, layout: Layouts) -> Mask:
    return layout.sharded(1) & ~layout.sharded(2)


def reduces_beside(recipe: Recipe, layout: Layouts) -> Mask:
    return _whole_gradients(layout) & bool(setting(recipe, "overlap_grad_reduce", False))


def _instances_divide(recipe: Recipe, layout: Layouts) -> Mask:
    copies = setting(recipe, "num_distributed_optimizer_instances", 1)
    assert isinstance(copies, int)
    divides: Mask = np.asarray(layout.replicas) % copies == 0
    if recipe.model.moe:
        same_experts = np.asarray(layout.gpus) // (layout.etp * layout.ep * layout.pp)
        divides &= same_experts % copies == 0
    return divides


def _ring(recipe: Recipe, layout: Layouts) -> Mask:
    """Context parallelism exchanges no heads."""
    alone: Mask = np.asarray(layout.cp_a2a) == 1
    return alone & (np.asarray(layout.cp) > 1)


def _read_ring(plain: Plain) -> Value | None:
    stated = plain.get("cp_comm_type")
    kind = stated[0] if isinstance(stated, list) and stated else stated
    return str(kind) if kind in ("p2p", "all_gather") else None


SWITCHES = (
    Switch(
        "cp_comm_type",
        "How ranks of a context-parallel ring get keys and values: hop by hop beside attention, or"
        " gathered before it. That heads are exchanged (a2a) the layout says.",
        ("p2p", "all_gather"),
        "p2p",
        "reassociated",
        tuple(
            Spelling(kind, (("--cp-comm-type", kind),), bridge=(("model.cp_comm_type", kind),))
            for kind in ("p2p", "all_gather")
        ),
        "all_gather is exposed, and joins no partial results; short with few key-value heads",
        "[transformer-engine] dot_product_attention/context_parallel.py; bytes counted",
        exists=_ring,
        needs=(
            Need(
                "gathered keys and values have heads of one size",
                lambda recipe, layout: np.asarray(
                    recipe.model.mla is None or recipe.model.mla.indexer is not None
                ),
                "Transformer Engine gathers keys and values whose heads are of one size, but"
                " {recipe.model.name} has latent attention",
                "try cp_comm_type p2p",
            ),
        ),
        read=_read_ring,
    ),
    Switch(
        "defer_embedding_wgrad_compute",
        "In a pipeline the head's weight gradients wait for the drain.",
        (False, True),
        False,
        "reassociated",
        (
            Spelling(False, bridge=(("model.defer_embedding_wgrad_compute", False),)),
            Spelling(
                True,
                (("--defer-embedding-wgrad-compute",),),
                bridge=(("model.defer_embedding_wgrad_compute", True),),
            ),
        ),
        "takes a product off each micro-batch of the last stage, and keeps the head's input and the"
        " gradient of the logits of those that wait",
        "[megatron-core] core/tensor_parallel/layers.py, core/utils.py"
        " drain_embedding_wgrad_compute; bytes counted",
        acts=_pipelined,
        needs=(
            Need(
                "a deferred head adds to the main gradient",
                _accumulates,
                "defer_embedding_wgrad_compute needs gradient_accumulation_fusion and whole"
                " gradients, but got zero={layout.zero}",
                "try zero=1 with gradient_accumulation_fusion on",
            ),
        ),
    ),
    Switch(
        "wgrad_deferral_limit",
        "Micro-batches whose weight gradient of the head waits at most; 0: all.",
        (),
        0,
        "same",
        (
            Spelling(
                0,
                (("--wgrad-deferral-limit", "{value}"),),
                bridge=(("model.wgrad_deferral_limit", "{value}"),),
            ),
        ),
        "less memory on the last stage, less taken off its micro-batches",
        "[megatron-core] core/model_parallel_config.py",
        acts=_defers,
    ),
    Switch(
        "num_distributed_optimizer_instances",
        "Copies of the optimizer's states, each sharded over a part of the replicas.",
        (),
        1,
        "reassociated",
        (
            Spelling(
                1,
                (("--num-distributed-optimizer-instances", "{value}"),),
                bridge=(("ddp.num_distributed_optimizer_instances", "{value}"),),
            ),
        ),
        "gathers and scatters within a part of the replicas, then an all-reduce of a rank's share"
        " among the parts; states as many times as large",
        "[megatron-core] core/distributed/param_and_grad_buffer.py; bytes counted",
        exists=_distributed,
        searched=copies,
        needs=(
            Need(
                "instances divide the replicas",
                _instances_divide,
                "num_distributed_optimizer_instances must divide dp * cp, and the ranks that hold"
                " the same experts, but got dp={layout.dp}, cp={layout.cp}, ep={layout.ep}",
                "try fewer instances",
            ),
            Need(
                "instances are not Muon's",
                lambda recipe, layout: np.asarray(recipe.optimizer != "muon"),
                "optimizers of whole matrices have one instance, but got {recipe.optimizer}",
                "try adam",
            ),
        ),
    ),
    Switch(
        "ddp_num_buckets",
        "Buckets of gradients of a rank; 0: as ddp_bucket_size says.",
        (),
        0,
        "same",
        (
            Spelling(
                0,
                (("--ddp-num-buckets", "{value}"),),
                bridge=(("ddp.num_buckets", "{value}"),),
            ),
        ),
        "as ddp_bucket_size",
        "[megatron-core] training/training.py resolve_ddp_bucket_size",
        unset=True,
        exists=reduces_beside,
        requires=(("overlap_grad_reduce", True),),
        needs=(
            Need(
                "buckets are told in one way",
                lambda recipe, layout: np.asarray(not setting(recipe, "ddp_bucket_size", 0)),
                "buckets have a number or a size, but got ddp_num_buckets and ddp_bucket_size",
                "leave one out",
            ),
        ),
    ),
)
