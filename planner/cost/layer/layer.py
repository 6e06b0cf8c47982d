"""Time of one transformer layer, per micro-batch and rank: forward, input gradient and weight
gradient apart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost.layer.chosen_operations import repeated_products
from planner.cost.layer.gemms import (
    Product,
    casts,
    mlp_products,
    product_s,
    products_s,
    weights,
)
from planner.cost.layer.kernels import is_low, memory_s
from planner.cost.layer.lora import NO_ADAPTERS, AdapterTime, adapters_time
from planner.cost.layer.mixers import context_times, scan, sequence_products, sequence_times
from planner.cost.layer.sparse import INDEX_LAUNCH_US, index_gathered
from planner.cost.layer.streams import stream_products, streams
from planner.cost.network import collectives
from planner.cost.params.layer import kv_heads_per_rank
from planner.cost.params.lora import layer_adapters
from planner.cost.params.trained import has_backward
from planner.layout import MODULES, Layouts, Numeric
from planner.specs.dispatcher import dispatchers
from planner.specs.recipe import Recipe
from planner.units import MICRO


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds; communication is what is not hidden. The sum of all terms is the time of one layer
    and micro-batch.
    """

    gemm_forward_s: Numeric
    gemm_input_s: Numeric
    """Input gradients of the matrix products."""
    gemm_weight_s: Numeric
    """Weight gradients, accumulated into the main gradients."""
    attention_forward_s: Numeric
    attention_backward_s: Numeric
    elementwise_forward_s: Numeric
    elementwise_backward_s: Numeric
    recompute_s: Numeric
    """Forward work repeated in the backward pass, with its communication."""
    tp_forward_s: Numeric
    tp_backward_s: Numeric
    cp_forward_s: Numeric
    cp_backward_s: Numeric
    tax_backward_s: Numeric
    """Compute slowed by the communication that hides behind it."""
    launch_forward_s: Numeric
    """What the CPU needs beyond the GPU's time."""
    launch_backward_s: Numeric
    ep_forward_s: Numeric = 0.0
    """Tokens to their experts and back."""
    ep_backward_s: Numeric = 0.0
    adapter_forward_s: Numeric = 0.0
    """Low-rank adapters."""
    adapter_backward_s: Numeric = 0.0
    host_forward_s: Numeric = 0.0
    """Activations on their way to host memory, and back, beyond what the rest hides."""
    host_backward_s: Numeric = 0.0

    @property
    def forward_s(self) -> Numeric:
        return (
            self.gemm_forward_s
            + self.attention_forward_s
            + self.elementwise_forward_s
            + self.tp_forward_s
            + self.cp_forward_s
            + self.launch_forward_s
            + self.ep_forward_s
            + self.adapter_forward_s
            + self.host_forward_s
        )

    @property
    def backward_s(self) -> Numeric:
        return (
            self.gemm_input_s
            + self.gemm_weight_s
            + self.attention_backward_s
            + self.elementwise_backward_s
            + self.recompute_s
            + self.tp_backward_s
            + self.cp_backward_s
            + self.tax_backward_s
            + self.launch_backward_s
            + self.ep_backward_s
            + self.adapter_backward_s
            + self.host_backward_s
        )

    @property
    def weight_gradient_s(self) -> Numeric:
        """The part of the backward pass that zero-bubble schedules can delay."""
        return self.gemm_weight_s


BACK = (
    "gemm_input_s",
    "gemm_weight_s",
    "recompute_s",
    *(f.name for f in fields(LayerTime) if f.name.endswith("_backward_s")),
)
"""Terms of the backward pass."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a layer does beside the core of its attention or its scan, by the kind of its MLP:
    dense, none, or experts.
    """

    products: tuple[Product, ...]
    activated: Numeric
    """Elements that the activation function makes: tokens times MLP width of the rank."""
    blocks: float
    """Blocks whose input tensor parallelism gathers and whose output it reduces: attention, MLP."""
    mlp: tuple[Product, ...] = ()
    """Of the products those that recomputing a dense MLP repeats."""
    moe: tuple[Product, ...] = ()
    """Those of routed experts and router."""
    shared: tuple[Product, ...] = ()
    repeated: tuple[Product, ...] = ()
    """What recomputation by operations repeats of the products that are not the former's."""
    moved_bytes: Numeric = 0.0
    """More memory traffic each way: routing, sorting."""
    ep_forward_s: Numeric = 0.0
    """Exchanges of tokens, before anything hides them."""
    ep_backward_s: Numeric = 0.0
    launch_us: tuple[float, float] = (0.0, 0.0)
    """CPU time beyond that of a dense layer, forward and backward."""
    wait_us: Numeric = 0.0
    """Each way, CPU time that the GPU cannot hide."""
    adapters: AdapterTime = NO_ADAPTERS


def matrices(recipe: Recipe, layout: Layouts) -> tuple[tuple[Numeric, Numeric], ...]:
    """Output and input width of each linear of a dense layer on one rank; the last two are the
    MLP's.
    """
    return tuple((product.n, product.k) for product in dense(recipe, layout).products)


def dense(recipe: Recipe, layout: Layouts) -> Kind:
    """A layer with a dense MLP, or none.

    Formula: sequence_products + stream_products + mlp_products of ffn_size
    Source:  [narayanan2021] sec. 2.3
    Assumes: activation over (3 or 2) / 2 f / tp elements a token.
    """
    model, count = recipe.model, recipe.tokens_per_rank(layout)
    ffn = model.ffn_size if model.has_mlp else 0
    mlp = mlp_products(recipe, layout, count, ffn) if ffn else ()
    streamed = stream_products(recipe, layout, count)
    products = (*sequence_products(recipe, layout, count), *streamed, *mlp)
    return Kind(
        products=products,
        repeated=repeated_products(recipe, layout, ffn),
        blocks=float(model.residual_blocks),
        mlp=mlp,
        activated=count * ffn / layout.tp,
        launch_us=sequence_launch_us(recipe),
        adapters=adapters_time(recipe, layout, layer_adapters(recipe), weights(products)),
    )


def sequence_launch_us(recipe: Recipe) -> tuple[float, float]:
    """CPU time that a layer's attention or mixer takes beyond plain attention's, each way."""
    model, software = recipe.model, recipe.software
    latent = software.experts.latent_launch_us if model.mla and model.has_attention else 0.0
    share = software.launch.scan_share
    more = (
        scan(model.mixer, model.hidden_size).launch_us,
        INDEX_LAUNCH_US if model.chooses_keys else (0.0, 0.0),
        streams(model).launch_us,
    )
    forward, backward = (sum(each) for each in zip(*more, strict=True))
    return latent + forward * share, latent + backward * share


def elementwise_times(recipe: Recipe, layout: Layouts, kind: Kind) -> tuple[Numeric, Numeric]:
    """Norms, residuals, dropout, activation function, rotary embedding, gates of attention,
    routing.

    Formula: bytes moved / HBM; what is outside the tensor-parallel region is split only by sequence
             parallelism, half of it for each of mixer and MLP; a gate on attention's output reads 4
             bytes of a unit of it and writes 2, twice as many backward; streams() likewise
    Source:  [korthikanti2022] sec. 4.2.2
    Assumes: the software's fusions.
    """
    model, software, count = recipe.model, recipe.software, recipe.tokens_per_rank(layout)
    outside = count * model.hidden_size / layout.sequence_shards * model.residual_blocks / 2
    branches = model.mlp_matrices / 2
    inside = kind.activated * branches
    rotated = (
        count
        * (model.query_size / layout.tp + kv_heads_per_rank(model, layout.tp) * model.head_dim)
        * (model.position == "rope")
        * model.has_attention
    )
    extra = 6 * count * model.output_size / layout.tp * model.gates_attention
    extra = extra + count / layout.sequence_shards * streams(model).streamed
    forward = (
        software.traffic.elementwise_bytes_forward * outside
        + software.traffic.activation_bytes_forward * inside
        + software.traffic.rope_bytes * rotated
        + extra
    )
    backward = (
        software.traffic.elementwise_bytes_backward * outside
        + software.traffic.activation_bytes_backward * inside
        + software.traffic.rope_bytes * rotated
        + 2 * extra
    )
    inputs, outputs = cast_bytes(recipe, layout, kind)
    more, wide = (
        kind.moved_bytes,
        recipe.element_bytes / 2,
    )  # the software's figures are of 2-byte elements
    return memory_s(recipe.hardware, wide * forward + inputs + more), memory_s(
        recipe.hardware, wide * backward + outputs + more
    )


def cast_bytes(
    recipe: Recipe, layout: Layouts, kind: Kind | None = None
) -> tuple[Numeric, Numeric]:
    """Memory traffic of quantizing the operands of a layer's products: inputs in the forward,
    output gradients in the backward pass.

    Formula: cast_bytes[precision] T sum(k) forward, T sum(n) backward; gathered columns' inputs
             with sp are cast before the gather
    Source:  [transformer-engine] quantizers: amax pass, cast, second copy for the weight gradient
    Assumes: weights are quantized once a step, which is not counted; 16-bit products need none.
    """
    count = recipe.tokens_per_rank(layout)
    each = (
        getattr(recipe.software.traffic.cast_bytes, recipe.precision.replace("-", "_"), 0.0) * count
    )
    forward, backward = casts((kind or dense(recipe, layout)).products, layout, count)
    return each * forward, each * backward


def tp_comm_times(
    recipe: Recipe, layout: Layouts, blocks: float = 2.0
) -> tuple[Numeric, Numeric, Numeric]:
    """Tensor-parallel communication of a layer: forward, backward before its products, beside
    weight gradients.

    Formula: an all-reduce forward and tp_reduces_backward / 2 backward for each of two blocks; with
             sp all-gather + reduce-scatter each way (backward: gathers open, scatters beside);
             latent attention gathers q + c + r in place of h; an index that chooses keys h + q
             more, forward alone
    Source:  [korthikanti2022] sec. 4.2.2; [megatron-core]
             LinearWithGradAccumulationAndAsyncCommunication; [aleph-alpha-scaling]
    Assumes: the inputs' second gathers of sp, as long as the opening ones, run beside the input
             gradients.
    """
    hardware = recipe.hardware
    members = collectives.group(hardware, 1, layout.tp)
    size = recipe.tokens_per_rank(layout) * recipe.model.hidden_size * recipe.element_bytes
    narrow = 0.5 if recipe.software.quirks.quantized_gathers and is_low(recipe.precision) else 1.0
    mla = recipe.model.mla if recipe.model.has_attention else None
    latent = (
        (mla.kv_lora_rank + mla.qk_rope_dim + (mla.q_lora_rank or recipe.model.hidden_size))
        / recipe.model.hidden_size
        if mla
        else 1.0
    )
    gather = collectives.gather_s(hardware, members, size * narrow)
    gathers = blocks * gather + (
        collectives.gather_s(hardware, members, size * narrow * latent) - gather if mla else 0.0
    )
    scatter = collectives.gather_s(hardware, members, size)
    reduce = collectives.all_reduce_s(hardware, members, size)
    sp = layout.sequence_split
    index = index_gathered(recipe.model) / recipe.model.hidden_size
    indexed = collectives.gather_s(hardware, members, size * index) if index else 0.0
    forward = np.where(sp, gathers + indexed + blocks * scatter, blocks * reduce)
    hideable = np.where(
        sp, blocks * scatter, recipe.software.quirks.tp_reduces_backward * blocks / 2 * reduce
    )
    return forward, np.where(sp, gathers, 0.0), hideable


def tp_shares(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Shares of tensor-parallel communication that may hide behind products, and of the input
    gradient's reduction behind the weight-gradient product.

    Formula: tp_share and tp_grad_share, at least tp_split_share and tp_split_grad_share under sp
    Source:  [megatron-core] training/arguments.py: userbuffers need sequence parallelism
    Assumes: that of each share.
    """
    overlap, split = recipe.software.overlap, layout.sequence_split
    return (
        np.maximum(overlap.tp_share, overlap.tp_split_share * split),
        np.maximum(overlap.tp_grad_share, overlap.tp_split_grad_share * split),
    )


def _recompute_s(recipe: Recipe, layout: Layouts, kind: Kind, parts: dict[str, Numeric]) -> Numeric:
    """Work repeated in the backward pass.

    Formula: full: the whole forward with its communication, less the MLP's last product where
             recomputation stops early; selective: each named module's own; moe: routing, exchanges
             and experts; mla_up_proj: latents' up-projections; ops: every second product, experts'
             all, what is no product, gathers of tp
    Source:  [korthikanti2022] sec. 5; [megatron-core] --recompute-modules; [torch-checkpoint] early
             stop; [torchtitan] SelectiveAC
    Assumes: full recomputation of every layer; partial is weighted by the caller.
    """
    software = recipe.software

    def has(module: str) -> Numeric:
        return np.right_shift(layout.recompute_modules, MODULES.index(module)) & 1

    def forward_s(products: tuple[Product, ...]) -> Numeric:
        seconds: Numeric = 0.0
        for product in products:
            seconds = seconds + product_s(recipe, product, product.rows, product.n, product.k)
        return seconds

    activated = memory_s(
        recipe.hardware,
        software.traffic.activation_bytes_forward * kind.activated * recipe.model.mlp_matrices / 2,
    )
    core = parts["attention"] * recipe.model.has_attention
    selective = has("core_attn") * core + has("layernorm") * parts["norms"]
    if kind.mlp:
        selective = selective + has("mlp") * (forward_s(kind.mlp) + parts["tp"] / 2)
    if kind.moe:
        routed = (
            forward_s(kind.moe)
            + activated
            + memory_s(recipe.hardware, kind.moved_bytes)
            + parts["ep"]
        )
        selective = (
            selective
            + has("moe") * (routed + forward_s(kind.shared))
            + has("moe_act") * (1 - has("moe")) * activated
        )
        selective = selective + has("shared_experts") * (1 - has("moe")) * forward_s(kind.shared)
    if recipe.model.mla and recipe.model.has_attention:
        ups = tuple(
            product
            for product in sequence_products(recipe, layout, recipe.tokens_per_rank(layout))
            if product.side == "column"
        )
        selective = selective + has("mla_up_proj") * (forward_s(ups) + parts["norms"] / 2)
    again = forward_s((*kind.repeated, *kind.moe)) + 2 * parts["norms"] + parts["tp"] / 2
    selective = selective + has("ops") * again
    code = np.asarray(layout.recompute)
    early = (
        forward_s((kind.products[-1],)) * software.quirks.recompute_early_stop
        if software.quirks.recompute_early_stop
        else 0.0
    )
    whole = parts["forward"] - early + _regathered_s(recipe, layout)
    return np.where(code == 2, whole, np.where(code == 1, selective, 0.0))


def _regathered_s(recipe: Recipe, layout: Layouts) -> Numeric:
    """Gather of a recomputed layer's input that lies split over tp.

    Formula: all-gather of T h elements over tp, none under sp
    Source:  [deepspeed] runtime/activation_checkpointing/checkpointing.py
             gather_partitioned_activations
    Assumes: not hidden.
    """
    if not recipe.software.kept.inputs_over_tp:
        return 0.0
    size = recipe.tokens_per_rank(layout) * recipe.model.hidden_size * recipe.element_bytes
    members = collectives.group(recipe.hardware, 1, layout.tp)
    return collectives.gather_s(recipe.hardware, members, size) * ~layout.sequence_split


def kind_time(recipe: Recipe, layout: Layouts, kind: Kind) -> LayerTime:
    """One layer of one micro-batch.

    Formula: max(GPU time, CPU launch time) + waits for the forward and for the backward pass, their
             sum where the processor that launches computes too; exchanges of tokens less what the
             stack hides
    Source:  that of each part, in planner.cost.layer
    Assumes: every layer of the kind alike.
    """
    software = recipe.software
    gemm_forward, gemm_input, gemm_weight, (column_input, column_weight) = products_s(
        recipe, layout, kind.products
    )
    attention = sequence_times(recipe, layout)
    forward, backward = elementwise_times(recipe, layout, kind)
    tp_forward, tp_open, tp_beside = tp_comm_times(recipe, layout, kind.blocks)
    cp_forward, cp_backward = context_times(recipe, layout, attention)
    tp_share, tp_grad_share = tp_shares(recipe, layout)
    tp_forward = tp_forward * (1 - tp_share)
    hidden = np.minimum(tp_beside * tp_grad_share, column_weight)
    tp_backward = (
        tp_open * (1 - tp_share) + np.maximum(tp_open - column_input, 0.0) + tp_beside - hidden
    )
    compute = gemm_forward + gemm_input + gemm_weight + attention[0] + attention[1]
    ep, apart = exposed_exchanges(recipe, layout, kind, compute)
    extra = kind.adapters
    whole_forward_s = (
        gemm_forward + attention[0] + forward + tp_forward + cp_forward + ep[0] + extra.forward_s
    )
    recompute = _recompute_s(
        recipe,
        layout,
        kind,
        {
            "forward": whole_forward_s,
            "attention": attention[0],
            "norms": forward * 0.5,
            "tp": tp_forward,
            "ep": ep[0],
        },
    )
    launch_forward, launch_backward = _launch_times(recipe, layout, kind)
    wait = kind.wait_us * MICRO * recipe.hardware.node.launch_factor
    gpu_backward = (
        gemm_input
        + gemm_weight
        + attention[1]
        + backward
        + recompute
        + tp_backward
        + cp_backward
        + ep[1]
        + extra.backward_s
    )
    time = LayerTime(
        adapter_forward_s=extra.forward_s,
        adapter_backward_s=extra.backward_s,
        gemm_forward_s=gemm_forward,
        gemm_input_s=gemm_input,
        gemm_weight_s=gemm_weight,
        attention_forward_s=attention[0],
        attention_backward_s=attention[1],
        elementwise_forward_s=forward,
        elementwise_backward_s=backward,
        recompute_s=recompute,
        tp_forward_s=tp_forward,
        tp_backward_s=tp_backward,
        cp_forward_s=cp_forward,
        cp_backward_s=cp_backward,
        ep_forward_s=ep[0],
        ep_backward_s=ep[1],
        tax_backward_s=software.overlap.tax_share * hidden + exchange_tax(recipe) * apart,
        launch_forward_s=np.maximum(launch_forward - whole_forward_s * software.launch.ahead, 0.0)
        + wait,
        launch_backward_s=np.maximum(launch_backward - gpu_backward * software.launch.ahead, 0.0)
        + wait,
    )
    return (
        time
        if has_backward(recipe)
        else replace(time, **dict.fromkeys(BACK, 0.0 * whole_forward_s))
    )


def exposed_exchanges(
    recipe: Recipe, layout: Layouts, kind: Kind, compute_s: Numeric
) -> tuple[tuple[Numeric, Numeric], Numeric]:
    """Exchanges of tokens that nothing hides, forward and backward, and those that run beside
    compute.

    Formula: beside another micro-batch min(overlap_share of both, the layer's compute), of forward
             and backward in proportion; beside shared experts at most what their products take
    Source:  [megatron-core] combined_1f1b, SharedExpertMLP
    Assumes: the micro-batch beside which they run has a layer of the kind to compute.
    """
    experts, exchanges = recipe.software.experts, (kind.ep_forward_s, kind.ep_backward_s)
    together = exchanges[0] + exchanges[1]
    if experts.overlap_share:
        among_ranks = np.asarray(layout.ep) > 1
        apart = np.minimum(together * experts.overlap_share, compute_s) * among_ranks
        left = 1 - apart / np.maximum(together, 1e-12)
        return (exchanges[0] * left, exchanges[1] * left), apart
    if experts.shared_overlap_share and kind.shared:
        forward, by_input, by_weight, _ = products_s(recipe, layout, kind.shared)
        hidden = (
            np.minimum(exchanges[0], forward * experts.shared_overlap_share),
            np.minimum(exchanges[1], (by_input + by_weight) * experts.shared_overlap_share),
        )
        return (exchanges[0] - hidden[0], exchanges[1] - hidden[1]), hidden[0] + hidden[1]
    return exchanges, 0.0 * together


def exchange_tax(recipe: Recipe) -> float:
    """Slowdown of compute while tokens travel beside it: a library's own, or NCCL's."""
    library = dispatchers().get(recipe.software.experts.dispatcher)
    return library.tax_share if library else recipe.software.overlap.tax_share


def _launch_times(recipe: Recipe, layout: Layouts, kind: Kind) -> tuple[Numeric, Numeric]:
    """What the CPU needs to launch a layer, forward and backward; recomputation of all or by
    operations launches the forward again.

    Where stages lie on several nodes, each of sp's 4 collectives forward and 6 backward may take it
    longer.
    """
    software, split = recipe.software, layout.tensor_split
    one_us = MICRO * recipe.hardware.node.launch_factor
    crossing = split & layout.pipelined & (recipe.gpus > recipe.hardware.node.gpus)
    collective = software.launch.collective_us_crossing * layout.tp * crossing
    blocks = recipe.model.residual_blocks / 2
    forward = (
        software.launch.us_forward * blocks
        + kind.launch_us[0]
        + software.launch.us_tp * split
        + 4 * collective
    ) * one_us
    backward = (
        software.launch.us_backward * blocks
        + kind.launch_us[1]
        + software.launch.us_tp * split
        + 6 * collective
    ) * one_us
    forward, backward = (
        forward + kind.adapters.launch_forward_s,
        backward + kind.adapters.launch_backward_s,
    )
    again = layout.recomputes_all | (layout.recomputes_modules & (layout.recomputes("ops") > 0))
    return forward, backward + forward * again
