"""Switches of DeepSpeed 0.16 to 0.19: keys of its configuration, and of the scripts that are
written for it.

Source of keys, defaults, needs and refusals: [deepspeed] 0.19.8, runtime/zero/config.py,
runtime/zero/offload_config.py, runtime/config.py, runtime/engine.py, runtime/zero/stage3.py,
runtime/zero/stage_1_and_2.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from planner.layout import OFFLOAD_CODE, Layouts, Mask
from planner.specs.deepspeed import in_megatron, with_autotp
from planner.specs.recipe import Recipe
from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.switch import (
    FIRST,
    VALUE,
    Need,
    Plain,
    Spelling,
    Switch,
    Value,
    setting,
)
from planner.specs.versions import Version

ZERO = "zero_optimization"
OFFLOAD = f"{ZERO}.offload_optimizer"
SOURCE = "[deepspeed] runtime/zero/config.py"
Where = Callable[[Recipe, Layouts], Mask]
Arithmetic = Literal["same", "reassociated", "lossy", "benchmark-only"]


def _shards(recipe: Recipe, layout: Layouts) -> Mask:
    return layout.sharded(1)


def _keeps_weights(recipe: Recipe, layout: Layouts) -> Mask:
    """ZeRO 1 and 2: gradients reduced to their owners, weights gathered after the step."""
    return layout.sharded(1) & ~layout.sharded(3)


def _shards_weights(recipe: Recipe, layout: Layouts) -> Mask:
    return layout.sharded(3)


def _reduces_by_zero(recipe: Recipe, layout: Layouts) -> Mask:
    """A bf16 pipeline's own optimizer all-reduces in pieces of a fixed size (pipe/engine.py
    _bf16_reduce_grads).
    """
    return ~layout.pipelined | (recipe.precision != "bf16")


def _has_no_pipeline(recipe: Recipe, layout: Layouts) -> Mask:
    """A pipeline reduces after its last micro-batch: there is nothing to overlap with."""
    return ~layout.pipelined


def _scatters(recipe: Recipe, layout: Layouts) -> Mask:
    """Muon needs whole gradients of its matrices."""
    return np.asarray(recipe.optimizer != "muon")


def _exchanges_sequences(recipe: Recipe, layout: Layouts) -> Mask:
    return _shards(recipe, layout) & (np.asarray(layout.cp) > 1)


def _crosses_nodes(recipe: Recipe, layout: Layouts) -> Mask:
    """Within one node all2all_process_group is not used: gradients are reduced in 16 bits."""
    return np.asarray(recipe.gpus > recipe.hardware.node.gpus)


def _freezes(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.lora is not None or bool(recipe.frozen))


def _updates_on_host(recipe: Recipe, layout: Layouts) -> Mask:
    away: Mask = np.asarray(layout.offload) > 0
    return away


def _updates_from_host_memory(recipe: Recipe, layout: Layouts) -> Mask:
    on_cpu: Mask = np.asarray(layout.offload) == OFFLOAD_CODE["optimizer-cpu"]
    return on_cpu & _shards_weights(recipe, layout)


def _adds_apart(recipe: Recipe, layout: Layouts) -> Mask:
    """A bf16 pipeline adds in 32 bits anyway under ZeRO 1, and ZeRO 0 refuses the word; with the
    optimizer on the host gradients are added there.
    """
    elsewhere = layout.pipelined | _updates_on_host(recipe, layout)
    halves = recipe.precision != "fp32"
    return np.logical_not(elsewhere) & layout.sharded(1) & halves


def _keeps_narrow_states(recipe: Recipe, layout: Layouts) -> Mask:
    apart = _adds_apart(recipe, layout) & (recipe.precision == "bf16")
    return apart & (recipe.optimizer == "adam")


def _splits_by_autotp(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(with_autotp(recipe, layout), bool)


def _recomputes_over_tp(recipe: Recipe, layout: Layouts) -> Mask:
    """With sp inputs are split as they are."""
    return layout.recomputes_all & layout.tensor_split & ~layout.sequence_split


def _in_megatron(recipe: Recipe, layout: Layouts) -> Mask:
    """Megatron-DeepSpeed checkpoints by deepspeed.checkpointing; train.py does not."""
    return np.asarray(in_megatron(recipe, layout), bool)


def _holds_all_logits(recipe: Recipe, layout: Layouts) -> Mask:
    """Head and loss are in one module, and of the whole vocabulary."""
    apart = layout.pipelined | layout.tensor_split | _in_megatron(recipe, layout)
    return np.logical_not(apart)


def _in_halves(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.precision != "fp32")


def _experts_scatter(recipe: Recipe, layout: Layouts) -> Mask:
    """No experts are split under ZeRO 2."""
    alone: Mask = (np.asarray(layout.ep) == 1) | (np.asarray(layout.zero) != 2)
    return alone


def _whole_nodes(recipe: Recipe, layout: Layouts) -> Mask:
    split = layout.tensor_split | (np.asarray(layout.cp) > 1)
    return np.logical_not(split) & (recipe.gpus % recipe.hardware.node.gpus == 0)


def _holds(name: str, wanted: Value, default: Value) -> Where:
    """Whether another switch has a value."""
    return lambda recipe, layout: np.asarray(setting(recipe, name, default) == wanted)


def _on_key(path: str) -> str:
    return f"deepspeed.{path}"


def _toggle(
    name: str,
    path: str,
    help: str,
    default: bool,
    says: str,
    exists: Where,
    *,
    arithmetic: Arithmetic = "same",
    source: str = SOURCE,
    since: Version = FIRST,
    acts: Where | None = None,
    needs: tuple[Need, ...] = (),
    read: Callable[[Plain], Value | None] | None = None,
    silent: bool = False,
) -> Switch:
    """A switch that one key turns on and off; silent: off is not written."""
    more: dict[str, Any] = {} if acts is None else {"acts": acts}
    spellings = (
        Spelling(False, keys=() if silent else ((path, False),)),
        Spelling(True, since=since, keys=((path, True),)),
    )
    return Switch(
        name,
        help,
        (False, True),
        default,
        arithmetic,
        spellings,
        says,
        source,
        exists=exists,
        needs=needs,
        read=read,
        **more,
    )


def _number(
    name: str,
    help: str,
    default: int,
    says: str,
    exists: Where,
    *,
    lowest: int = 1,
    needs: tuple[Need, ...] = (),
) -> Switch:
    """Elements, by a key of zero_optimization."""
    return Switch(
        name,
        help,
        (),
        default,
        "same",
        (Spelling(default, keys=((f"{ZERO}.{name}", VALUE),)),),
        says,
        SOURCE,
        exists=exists,
        lowest=lowest,
        needs=needs,
    )


def _read_overlap(plain: Plain) -> Value | None:
    """As stated; else DeepSpeed overlaps under ZeRO 3 alone."""
    stated = plain.get(_on_key(f"{ZERO}.overlap_comm"))
    if isinstance(stated, bool):
        return stated
    return plain.get(_on_key(f"{ZERO}.stage")) == 3


LIGER = (
    "liger_loss",
    "hf.use_liger_kernel",
    "hf.use_liger",
    "hf.enable_liger_kernel",
    "hf.liger_fused_linear_cross_entropy",
)
"""Words that fuse the head with the loss: those of train.py, and of Hugging Face's trainers."""


def _read_liger(plain: Plain) -> Value | None:
    return any(bool(plain.get(name)) for name in LIGER)


def _read_states(plain: Plain) -> Value | None:
    """Both words: masters alone in 16 bits need the optimizer on the host."""
    words = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
    return all(plain.get(_on_key(f"bf16.{word}")) is True for word in words)


def _type_of(path: str, first: str) -> Callable[[Plain], Value | None]:
    """A number format by its key, where it is not the first value's."""

    def read(plain: Plain) -> Value | None:
        stated = plain.get(_on_key(path))
        if stated in ("fp32", "bf16", "fp16"):
            return "fp32" if stated == "fp32" else "model"
        return first

    return read


def _types(path: str) -> tuple[Spelling, ...]:
    return (Spelling("model"), Spelling("fp32", keys=((path, "fp32"),)))


SCATTERS = _holds("reduce_scatter", True, True)

SWITCHES = (
    _toggle(
        "overlap_comm",
        f"{ZERO}.overlap_comm",
        "Gradients are reduced, and under ZeRO 3 weights gathered, beside compute.",
        False,
        "hides the reductions and, under ZeRO 3, the gathers; ZeRO 1 and 2 hold a second bucket."
        " Where a file says nothing it is on under ZeRO 3 alone",
        _shards,
        source="[deepspeed] runtime/zero/config.py overlap_comm_valid, stage_1_and_2.py"
        " setup_buckets, parameter_offload.py",
        acts=_has_no_pipeline,
        read=_read_overlap,
    ),
    _toggle(
        "contiguous_gradients",
        f"{ZERO}.contiguous_gradients",
        "Gradients are copied into one bucket as they come.",
        True,
        "fragments less, and holds reduce_bucket_size elements the whole time",
        _shards,
        source="[deepspeed] runtime/zero/stage_1_and_2.py setup_buckets, stage3.py",
        acts=_reduces_by_zero,
        needs=(
            Need(
                "split experts need contiguous gradients",
                _experts_scatter,
                "experts under ZeRO 2 need contiguous_gradients, but got it off with"
                " ep={layout.ep}",
                "turn it on",
                values=(False,),
            ),
        ),
    ),
    _toggle(
        "use_multi_rank_bucket_allreduce",
        f"{ZERO}.use_multi_rank_bucket_allreduce",
        "ZeRO 1 and 2 all-reduce a bucket of several owners, in place of a reduction to each.",
        True,
        "few collectives, twice the bytes",
        _keeps_weights,
        arithmetic="reassociated",
        source="[deepspeed] runtime/zero/stage_1_and_2.py average_tensor",
        acts=_reduces_by_zero,
    ),
    _toggle(
        "reduce_scatter",
        f"{ZERO}.reduce_scatter",
        "Gradients are reduced to their owners, or all-reduced.",
        True,
        "off: twice the bytes",
        _shards,
        arithmetic="reassociated",
        acts=_reduces_by_zero,
        needs=(
            Need(
                "Muon reduces whole gradients",
                lambda recipe, layout: ~layout.sharded(3) | _scatters(recipe, layout),
                "Muon under ZeRO 3 needs whole gradients, but got reduce_scatter on",
                "turn it off",
                values=(True,),
            ),
            Need(
                "split experts scatter gradients",
                _experts_scatter,
                "experts under ZeRO 2 need reduce_scatter, but got it off with ep={layout.ep}",
                "turn it on",
                values=(False,),
            ),
        ),
    ),
    _number(
        "reduce_bucket_size",
        "Elements of gradients that are reduced at once.",
        500_000_000,
        "holds so many elements, twice under overlap_comm; small ones cost latency",
        _shards,
    ),
    _number(
        "allgather_bucket_size",
        "Elements of updated weights that ZeRO 1 and 2 gather at once.",
        500_000_000,
        "small ones cost latency; gathers go into the weights themselves, no memory",
        _keeps_weights,
        lowest=2,
        needs=(
            Need(
                "gathers are aligned",
                lambda recipe, layout: np.asarray(
                    int(setting(recipe, "allgather_bucket_size", 500_000_000)) % 2 == 0
                ),
                "allgather_bucket_size must be even",
                "add 1",
            ),
        ),
    ),
    _number(
        "stage3_prefetch_bucket_size",
        "Elements of weights that ZeRO 3 fetches ahead.",
        50_000_000,
        "0: no gather hides behind compute",
        _shards_weights,
        lowest=0,
    ),
    _number(
        "stage3_max_live_parameters",
        "Whole weights beyond which ZeRO 3 fetches nothing ahead.",
        1_000_000_000,
        "bounds the weights that are held whole",
        _shards_weights,
    ),
    _number(
        "stage3_max_reuse_distance",
        "Weights used again within so many elements are kept whole.",
        1_000_000_000,
        "bounds the weights that are held whole",
        _shards_weights,
    ),
    _number(
        "stage3_param_persistence_threshold",
        "Weights of fewer elements are not sharded.",
        100_000,
        "weights below it lie whole on every rank and are not gathered",
        _shards_weights,
        lowest=0,
    ),
    _toggle(
        "stage3_use_all_reduce_for_fetch_params",
        f"{ZERO}.stage3_use_all_reduce_for_fetch_params",
        "ZeRO 3 gathers weights by an all-reduce of zeros and its own slice.",
        False,
        "no copy after the gather, twice the bytes; its gain (+9%) is Habana's",
        _shards_weights,
        source="[deepspeed] runtime/zero/partition_parameters.py, pull request 5420",
        needs=(
            Need(
                "an all-reduce fetches plain weights",
                lambda recipe, layout: (
                    (np.asarray(layout.hpz) == 1)
                    & _holds("zero_quantized_weights", False, False)(recipe, layout)
                ),
                "stage3_use_all_reduce_for_fetch_params does nothing beside hpZ or"
                " zero_quantized_weights, but got hpz={layout.hpz}",
                "turn it off",
            ),
        ),
    ),
    _toggle(
        "zero_quantized_weights",
        f"{ZERO}.zero_quantized_weights",
        "ZeRO++ qwZ: weights are gathered in 8 bits, in blocks with a scale.",
        False,
        "half the bytes of every gather, and kernels that convert",
        _shards_weights,
        arithmetic="lossy",
        source="arXiv 2306.10209; [deepspeed] runtime/zero/partition_parameters.py CUDAQuantizer",
        needs=(
            Need(
                "quantized weights are of 16 bits",
                _in_halves,
                "zero_quantized_weights converts 16-bit weights, but got {recipe.precision}",
                "turn it off, or train in bf16",
            ),
        ),
    ),
    _toggle(
        "zero_quantized_nontrainable_weights",
        f"{ZERO}.zero_quantized_nontrainable_weights",
        "Frozen weights are kept and gathered in 8 bits.",
        False,
        "half the memory of frozen weights, and of their gathers",
        _freezes,
        arithmetic="lossy",
        source="[deepspeed] runtime/zero/partition_parameters.py",
        silent=True,
        needs=(
            Need(
                "quantized frozen weights are sharded",
                _shards_weights,
                "zero_quantized_nontrainable_weights belongs to ZeRO 3, but got zero={layout.zero}",
                "try zero 3, or turn it off",
            ),
        ),
    ),
    _toggle(
        "zero_quantized_gradients",
        f"{ZERO}.zero_quantized_gradients",
        "ZeRO++ qgZ: gradients travel in 4 bits, inside nodes and then between them.",
        False,
        "a quarter of the bytes of a reduction, twice quantized; one node reduces in 16 bits",
        _shards_weights,
        arithmetic="lossy",
        source="arXiv 2306.10209; [deepspeed] runtime/comm/coalesced_collectives.py"
        " all_to_all_quant_reduce",
        needs=(
            Need(
                "quantized gradients cross nodes",
                _crosses_nodes,
                "zero_quantized_gradients does nothing on one node, but got {recipe.gpus} GPUs",
                "turn it off",
            ),
            Need(
                "quantized gradients are fp16",
                lambda recipe, layout: np.asarray(recipe.precision == "fp16"),
                "zero_quantized_gradients reads gradients as fp16 whatever they are, but got"
                " {recipe.precision}",
                "turn it off, or train in fp16",
            ),
            Need(
                "quantized gradients are scattered",
                SCATTERS,
                "zero_quantized_gradients needs reduce_scatter, but got it off",
                "turn reduce_scatter on",
            ),
            Need(
                "quantized gradients fill nodes",
                _whole_nodes,
                "zero_quantized_gradients exchanges inside whole nodes and between them, without"
                " tensor or sequence parallelism, but got {recipe.gpus} GPUs, tp={layout.tp},"
                " cp={layout.cp}",
                "turn it off",
            ),
            Need(
                "quantized gradients have no experts",
                lambda recipe, layout: np.asarray(layout.ep) == 1,
                "zero_quantized_gradients goes without AutoEP, but got ep={layout.ep}",
                "try ep 1",
            ),
            Need(
                "quantized gradients are not Muon's",
                _scatters,
                "zero_quantized_gradients splits gradients that Muon needs whole",
                "turn it off",
            ),
        ),
    ),
    Switch(
        "communication_data_type",
        "Numbers in which gradients are reduced: the model's or fp32.",
        ("model", "fp32"),
        "model",
        "same",
        _types("communication_data_type"),
        "fp32: twice the bytes and the buckets",
        "[deepspeed] runtime/engine.py communication_data_type",
        exists=lambda recipe, layout: _in_halves(recipe, layout) & (np.asarray(layout.cp) == 1),
        read=_type_of("communication_data_type", "model"),
    ),
    Switch(
        "seq_parallel_communication_data_type",
        "The same under Ulysses, where DeepSpeed takes fp32 unless told otherwise: fp32 or bf16.",
        ("fp32", "bf16"),
        "fp32",
        "same",
        (
            Spelling("fp32", keys=(("seq_parallel_communication_data_type", "fp32"),)),
            Spelling("bf16", keys=(("seq_parallel_communication_data_type", "bf16"),)),
        ),
        "bf16: half the bytes and the buckets",
        "[deepspeed] runtime/engine.py _configure_distributed_model",
        lossy=("bf16",),
        exists=_exchanges_sequences,
        needs=(
            Need(
                "sequences are reduced as they train",
                lambda recipe, layout: np.asarray(recipe.precision == "bf16"),
                "seq_parallel_communication_data_type=bf16 goes with bf16 training, but got"
                " {recipe.precision}",
                "leave it at fp32",
            ),
        ),
    ),
    Switch(
        "grad_accum_dtype",
        "Numbers in which gradients of micro-batches are added: the model's or fp32.",
        ("model", "fp32"),
        "model",
        "same",
        _types("data_types.grad_accum_dtype"),
        "fp32: 4 bytes a gradient held, whole under ZeRO 1; DeepSpeed adds bf16 gradients in bf16"
        " unless told",
        "[deepspeed] runtime/engine.py get_data_types, _do_optimizer_sanity_check",
        exists=_adds_apart,
        read=_type_of("data_types.grad_accum_dtype", "model"),
    ),
    Switch(
        "bf16_states",
        "Master weights and Adam's moments in bf16.",
        (False, True),
        False,
        "lossy",
        (
            Spelling(False),
            Spelling(
                True,
                since=(0, 19),
                keys=(
                    ("bf16.bf16_master_weights_and_grads", True),
                    ("bf16.bf16_optimizer_states", True),
                ),
            ),
        ),
        "6 bytes a parameter in place of 12",
        "[deepspeed] runtime/base_optimizer.py _configure_master_weights; bytes counted",
        read=_read_states,
        needs=(
            Need(
                "narrow states are Adam's on the GPU",
                _keeps_narrow_states,
                "bf16_states goes with bf16, Adam, zero 1 to 3 and neither offload nor pipeline,"
                " but got {recipe.precision}, {recipe.optimizer}, zero={layout.zero},"
                " offload={knobs[offload]}, pp={layout.pp}",
                "turn it off",
            ),
        ),
    ),
    Switch(
        "offload_ratio",
        "Part of the optimizer that is updated on the host; the rest stays on the GPU.",
        (),
        1.0,
        "reassociated",
        (Spelling(1.0, keys=((f"{OFFLOAD}.ratio", VALUE),)),),
        "less work for the host, more memory of the GPU",
        "[deepspeed] runtime/zero/stage3.py; ZeRO-Offload++: up to 6 times a step (OPT-30B, 8"
        " H100), 3 times (OPT-13B, 8 A100)",
        exists=_updates_on_host,
        share=True,
        needs=(
            Need(
                "a part on the host needs zero 3",
                _updates_from_host_memory,
                "offload_ratio below 1 needs zero 3 and offload optimizer-cpu, but got"
                " zero={layout.zero}, offload={knobs[offload]}",
                "try offload_ratio 1",
            ),
            Need(
                "a part on the host is Adam's",
                lambda recipe, layout: np.asarray(
                    recipe.optimizer == "adam" or setting(recipe, "offload_ratio", 1.0) == 1
                ),
                "offload_ratio below 1 needs DeepSpeedCPUAdam, but got {recipe.optimizer}",
                "try offload_ratio 1",
            ),
        ),
    ),
    _toggle(
        "pin_memory",
        f"{OFFLOAD}.pin_memory",
        "What lies in host memory is page-locked.",
        True,
        "off: copies go through a buffer of the driver, at about half of PCIe",
        _updates_on_host,
        source="[deepspeed] runtime/zero/offload_config.py: off by itself up to 0.19.0",
    ),
    _toggle(
        "super_offload",
        f"{OFFLOAD}.super_offload",
        "SuperOffload: gradients are cast on the GPU, and Adam runs in a process of its own.",
        False,
        "a faster update on the host; beside the backward pass only without gradient clipping,"
        " which is written on",
        _updates_on_host,
        arithmetic="reassociated",
        source="DeepSpeed's SuperOffload: 1.3 times CPUAdam on one GH200; [deepspeed]"
        " runtime/superoffload/superoffload_stage3.py",
        since=(0, 18),
        silent=True,
        needs=(
            Need(
                "SuperOffload needs zero 3",
                _updates_from_host_memory,
                "super_offload needs zero 3 and offload optimizer-cpu, but got"
                " zero={layout.zero}, offload={knobs[offload]}",
                "turn it off",
            ),
            Need(
                "SuperOffload updates Adam",
                lambda recipe, layout: np.asarray(recipe.optimizer == "adam"),
                "super_offload updates by its own Adam, but got {recipe.optimizer}",
                "turn it off",
            ),
        ),
    ),
    _toggle(
        "tp_overlap_comm",
        "tensor_parallel.tp_overlap_comm",
        "AutoTP reduces input gradients beside the product of the weight gradient.",
        False,
        "hides a half of tensor parallelism's reductions",
        lambda recipe, layout: layout.tensor_split,
        source="[deepspeed] module_inject/layers.py AsyncColumnParallel",
        silent=True,
        needs=(
            Need(
                "AutoTP overlaps",
                _splits_by_autotp,
                "tp_overlap_comm is AutoTP's, without a pipeline and since 0.18, but got"
                " pp={layout.pp} under {recipe.framework_version}",
                "turn it off",
            ),
        ),
    ),
    Switch(
        "partition_activations",
        "Inputs of recomputed layers are split over tp (Megatron-DeepSpeed).",
        (False, True),
        False,
        "same",
        (Spelling(False), Spelling(True, (("--partition-activations",),))),
        "inputs of recomputed layers take 1/tp, and are gathered once more",
        "[deepspeed] runtime/activation_checkpointing/checkpointing.py",
        exists=_recomputes_over_tp,
        needs=(
            Need(
                "Megatron-DeepSpeed partitions activations",
                _in_megatron,
                "partition_activations is deepspeed.checkpointing's, which Megatron-DeepSpeed"
                " alone uses, but got pp={layout.pp}",
                "turn it off",
            ),
        ),
    ),
    Switch(
        "liger_kernel",
        "Head and loss in one kernel that never holds the logits (Liger).",
        (False, True),
        False,
        "reassociated",
        (Spelling(False), Spelling(True, (("--liger-loss",),))),
        "the loss's memory is gone, its traffic falls to a fifth",
        "Liger-Kernel README: 60% less memory of Llama3-8B; 99 and 80 GiB of Llama3.1-8B under"
        " ZeRO 2 (ml-engineering)",
        read=_read_liger,
        needs=(
            Need(
                "Liger's loss has all logits",
                _holds_all_logits,
                "liger_kernel fuses head and loss of one rank, without pipeline and tensor"
                " parallelism, but got tp={layout.tp}, pp={layout.pp}",
                "turn it off",
            ),
        ),
    ),
    EXPANDABLE_SEGMENTS,
)
