"""Time of one transformer layer, per micro-batch and rank: forward, input gradient and weight gradient apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import collectives
from planner.cost.kernels import flash_attention_s, flash_backward_s, gemm_s, is_low, memory_s
from planner.cost.params import kv_heads_per_rank
from planner.layout import MODULES, Layout, Numeric
from planner.specs.recipe import Recipe
from planner.units import MICRO


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds; communication is what is not hidden. The sum of all terms is the time of one layer and micro-batch."""

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
    """Weight-gradient products slowed by the communication that hides behind them."""
    launch_forward_s: Numeric
    """What the CPU needs beyond the GPU's time."""
    launch_backward_s: Numeric

    @property
    def forward_s(self) -> Numeric:
        return (self.gemm_forward_s + self.attention_forward_s + self.elementwise_forward_s
                + self.tp_forward_s + self.cp_forward_s + self.launch_forward_s)  # fmt: skip

    @property
    def backward_s(self) -> Numeric:
        return (self.gemm_input_s + self.gemm_weight_s + self.attention_backward_s + self.elementwise_backward_s + self.recompute_s
                + self.tp_backward_s + self.cp_backward_s + self.tax_backward_s + self.launch_backward_s)  # fmt: skip

    @property
    def weight_gradient_s(self) -> Numeric:
        """The part of the backward pass that zero-bubble schedules can delay."""
        return self.gemm_weight_s


def tokens(recipe: Recipe, layout: Layout) -> Numeric:
    """Tokens of a micro-batch on one rank."""
    return layout.mbs * (recipe.seq_length / layout.cp)


def matrices(recipe: Recipe, layout: Layout) -> tuple[tuple[Numeric, Numeric], ...]:
    """Output and input width of each linear of a layer on one rank: query-key-value, output, MLP in, MLP out.

    Formula: (a + 2k) d / tp from h; h from a d / tp; (2 or 1) f / tp from h; h from f / tp
    Source:  [narayanan2021] sec. 2.3
    Assumes: query, key and value in one product, both branches of a gated MLP in one.
    """
    model, tp = recipe.model, layout.tp
    h = model.hidden_size
    queries, kv = model.query_size / tp, model.kv_size / tp
    ffn = model.ffn_size / tp
    return (queries + 2 * kv, h), (h, queries), ((2 if model.gated_mlp else 1) * ffn, h), (h, ffn)


def gemm_times(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric, Numeric, Numeric]:
    """Forward, input-gradient and weight-gradient time of the layer's linears; last, the weight gradients of those split by columns.

    Formula: C[T,n] = X[T,k] W; dX[T,k] = dY W'; dW[n,k] += dY' X with read and write of the 4-byte main gradient
    Source:  [narayanan2021] sec. 2.3; accumulation into main gradients [megatron-core]
    Assumes: the measured product's own output is 2 bytes; the rest of the accumulation is memory traffic.
    """
    hardware, precision, count = recipe.hardware, recipe.precision, tokens(recipe, layout)
    forward, inputs, weights, columns = 0.0, 0.0, 0.0, 0.0
    for index, (n, k) in enumerate(matrices(recipe, layout)):
        forward = forward + gemm_s(hardware, precision, count, n, k, prepared=True)
        inputs = inputs + gemm_s(hardware, precision, count, k, n, prepared=True)
        weight = gemm_s(hardware, precision, n, k, count, prepared=True) + memory_s(hardware, recipe.stack.accumulate_bytes * n * k)
        weights = weights + weight
        columns = columns + weight * (index % 2 == 0)
    return forward, inputs, weights, columns


def attention_times(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric]:
    """Forward and backward time of the attention core.

    Formula: flash, and cuDNN's fused kernel like it: causal FLOPs; unfused: full s x s products and the traffic of scores, softmax, mask and dropout
    Source:  [dao2022]; [korthikanti2022] for unfused
    Assumes: heads split evenly; a rank of a context-parallel group has 1/cp of the work, in cp kernels that see s/cp tokens each.
    """
    model, hardware, stack = recipe.model, recipe.hardware, recipe.stack
    heads, s = model.num_heads / layout.tp, float(recipe.seq_length)
    if recipe.attention != "unfused":
        blocks = flash_attention_s(hardware, layout.mbs, heads, s / layout.cp, model.head_dim)
        forward = blocks * layout.cp / getattr(stack.attention_shares, hardware.gpu.architecture, 1.0)
        return forward, flash_backward_s(hardware, forward)
    batch = layout.mbs * heads / layout.cp
    scores = batch * s * s
    one = gemm_s(hardware, recipe.precision, s, s, model.head_dim) * batch
    other = gemm_s(hardware, recipe.precision, s, model.head_dim, s) * batch
    fixed = (batch - 1) * next(iter(hardware.kernels.gemm.values())).fixed_us * MICRO  # one launch for the whole batch
    forward = one + other - 2 * fixed + memory_s(hardware, stack.scores_bytes_forward * scores)
    backward = 2 * (one + other - 2 * fixed) + memory_s(hardware, stack.scores_bytes_backward * scores)
    return forward, backward


def elementwise_times(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric]:
    """Norms, residuals, dropout, activation function, rotary embedding.

    Formula: bytes moved / HBM; what is outside the tensor-parallel region is split only by sequence parallelism
    Source:  [korthikanti2022] sec. 4.2.2
    Assumes: the stack's fusions.
    """
    model, stack, count = recipe.model, recipe.stack, tokens(recipe, layout)
    outside = count * model.hidden_size / np.where(np.asarray(layout.sp) == 1, layout.tp, 1)
    branches = (3 if model.gated_mlp else 2) / 2
    inside = count * model.ffn_size / layout.tp * branches
    rotated = count * (model.query_size / layout.tp + kv_heads_per_rank(model, layout.tp) * model.head_dim) * (model.position == "rope")
    forward = stack.elementwise_bytes_forward * outside + stack.activation_bytes_forward * inside + stack.rope_bytes * rotated
    backward = stack.elementwise_bytes_backward * outside + stack.activation_bytes_backward * inside + stack.rope_bytes * rotated
    inputs, outputs = cast_bytes(recipe, layout)
    return memory_s(recipe.hardware, forward + inputs), memory_s(recipe.hardware, backward + outputs)


def cast_bytes(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric]:
    """Memory traffic of quantizing the operands of a layer's products: inputs in the forward, output gradients in the backward pass.

    Formula: cast_bytes[precision] T sum(k) forward, T sum(n) backward; gathered columns' inputs with sp are cast before the gather
    Source:  [transformer-engine] quantizers: amax pass, cast, second copy for the weight gradient
    Assumes: weights are quantized once a step, which is not counted; 16-bit products need none.
    """
    each = getattr(recipe.stack.cast_bytes, recipe.precision.replace("-", "_"), 0.0) * tokens(recipe, layout)
    shared = np.where(np.asarray(layout.sp) == 1, layout.tp, 1)
    forward, backward = 0.0, 0.0
    for index, (n, k) in enumerate(matrices(recipe, layout)):
        columns = index % 2 == 0
        forward = forward + k / (shared if columns else 1)
        backward = backward + n / (1 if columns else shared)
    return each * forward, each * backward


def tp_comm_times(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric, Numeric]:
    """Tensor-parallel communication of a layer: forward, backward before a layer's weight gradient, backward beside it.

    Formula: two all-reduces forward, tp_reduces_backward (two) backward; with sp all-gather + reduce-scatter twice each way
             (backward: gathers open, scatters beside)
    Source:  [korthikanti2022] sec. 4.2.2; [megatron-core] LinearWithGradAccumulationAndAsyncCommunication; [aleph-alpha-scaling]
    Assumes: the input's second gather of sp hides behind the input-gradient product.
    """
    hardware = recipe.hardware
    members = collectives.group(hardware, 1, layout.tp)
    size = tokens(recipe, layout) * recipe.model.hidden_size * 2.0
    narrow = 0.5 if recipe.stack.quantized_gathers and is_low(recipe.precision) else 1.0
    gather = collectives.gather_s(hardware, members, size * narrow)
    scatter = collectives.gather_s(hardware, members, size)
    reduce = collectives.all_reduce_s(hardware, members, size)
    sp = np.asarray(layout.sp) == 1
    forward = np.where(sp, 2 * gather + 2 * scatter, 2 * reduce)
    return forward, np.where(sp, 2 * gather, 0.0), np.where(sp, 2 * scatter, recipe.stack.tp_reduces_backward * reduce)


def _ulysses_times(recipe: Recipe, layout: Layout) -> tuple[Numeric, Numeric]:
    """Forward and backward of Ulysses' exchange.

    Formula: latency + (cp-1)/cp of 2-byte q, k, v of the rank's tokens, and the same of the output; keys and values copied to cp heads
    Source:  [deepspeed] sequence/layer.py DistributedAttention: an all-to-all each for q, k, v and the output
    Assumes: an all-to-all moves at the bus bandwidth of a gather.
    """
    model = recipe.model
    members = collectives.group(recipe.hardware, 1, layout.cp)
    kv_heads = np.maximum(model.num_kv_heads, layout.cp)
    sizes = (model.query_size, kv_heads * model.head_dim, kv_heads * model.head_dim, model.query_size)
    one = sum(collectives.gather_s(recipe.hardware, members, tokens(recipe, layout) * 2.0 * size) for size in sizes)
    return one, one


def cp_comm_times(recipe: Recipe, layout: Layout, attention_s: tuple[Numeric, Numeric]) -> tuple[Numeric, Numeric]:
    """Context-parallel ring of keys and values, where it outlasts the attention that hides it; DeepSpeed exchanges heads for tokens.

    Formula: Ulysses: all-to-all of q, k, v and of the output, each way, not hidden; else
             max(0, (cp-1) send(K, V of a rank) - attention (cp-1)/cp) + joining of partial results; backward K, V and their gradients
    Source:  [megatron-core] --cp-comm-type p2p; [transformer-engine] context_parallel: every hop's output is rescaled and added
    Assumes: the ring's hops are of the group's slowest class.
    """
    if recipe.framework == "deepspeed":
        return _ulysses_times(recipe, layout)
    kv = 2 * kv_heads_per_rank(recipe.model, layout.tp) * recipe.model.head_dim * 2.0
    size = tokens(recipe, layout) * kv
    hop = collectives.send_s(recipe.hardware, layout.tp, layout.cp, size)
    hops = layout.cp - 1
    hidden = hops / layout.cp
    partial = recipe.stack.ring_bytes * tokens(recipe, layout) * recipe.model.query_size / layout.tp
    joined = memory_s(recipe.hardware, partial * hops)
    forward = np.maximum(hops * hop - attention_s[0] * hidden, 0.0) + joined
    return forward, np.maximum(2 * hops * hop - attention_s[1] * hidden, 0.0) + joined


def _recompute_s(recipe: Recipe, layout: Layout, parts: dict[str, Numeric]) -> Numeric:
    """Work repeated in the backward pass.

    Formula: full: the whole forward with its communication, less the MLP's last product where recomputation stops early;
             selective: each named module's own
    Source:  [korthikanti2022] sec. 5; [megatron-core] --recompute-modules; [torch-checkpoint] early stop
    Assumes: full recomputation of every layer; partial is weighted by the caller.
    """

    def has(module: str) -> Numeric:
        return np.right_shift(layout.recompute_modules, MODULES.index(module)) & 1

    selective = has("core_attn") * parts["attention"] + has("layernorm") * parts["norms"]
    selective = selective + has("mlp") * (parts["mlp"] + parts["tp"] / 2)
    kind = np.asarray(layout.recompute)
    return np.where(kind == 2, parts["forward"], np.where(kind == 1, selective, 0.0))


def layer_time(recipe: Recipe, layout: Layout) -> LayerTime:
    """One layer of one micro-batch.

    Formula: max(GPU time, CPU launch time) for the forward and for the backward pass
    Source:  the parts' own
    Assumes: every layer alike.
    """
    stack = recipe.stack
    gemm_forward, gemm_input, gemm_weight, column_weight = gemm_times(recipe, layout)
    attention = attention_times(recipe, layout)
    forward, backward = elementwise_times(recipe, layout)
    tp_forward, tp_open, tp_beside = tp_comm_times(recipe, layout)
    cp_forward, cp_backward = cp_comm_times(recipe, layout, attention)
    tp_forward = tp_forward * (1 - stack.tp_overlap_share)
    hidden = np.minimum(tp_beside * stack.tp_grad_overlap_share, column_weight)
    tp_backward = tp_open * (1 - stack.tp_overlap_share) + tp_beside - hidden
    whole = gemm_forward + attention[0] + forward + tp_forward + cp_forward
    (_, _), (_, _), (n_in, k_in), (n_out, k_out) = matrices(recipe, layout)
    count = tokens(recipe, layout)
    last = gemm_s(recipe.hardware, recipe.precision, count, n_out, k_out, prepared=True)
    mlp = gemm_s(recipe.hardware, recipe.precision, count, n_in, k_in, prepared=True) + last
    recompute = _recompute_s(recipe, layout, {
        "forward": whole - last * stack.recompute_early_stop,
        "attention": attention[0], "norms": forward * 0.5, "mlp": mlp, "tp": tp_forward,
    })  # fmt: skip
    split = np.asarray(layout.tp) > 1
    one_us = MICRO * recipe.hardware.node.launch_factor
    launch_forward = (stack.launch_us_forward + stack.launch_us_tp * split) * one_us
    launch_backward = (stack.launch_us_backward + stack.launch_us_tp * split) * one_us
    launch_backward = launch_backward + launch_forward * (np.asarray(layout.recompute) == 2)
    gpu_backward = gemm_input + gemm_weight + attention[1] + backward + recompute + tp_backward + cp_backward
    return LayerTime(
        gemm_forward_s=gemm_forward, gemm_input_s=gemm_input, gemm_weight_s=gemm_weight,
        attention_forward_s=attention[0], attention_backward_s=attention[1],
        elementwise_forward_s=forward, elementwise_backward_s=backward, recompute_s=recompute,
        tp_forward_s=tp_forward, tp_backward_s=tp_backward, cp_forward_s=cp_forward, cp_backward_s=cp_backward,
        tax_backward_s=stack.overlap_tax_share * hidden,
        launch_forward_s=np.maximum(launch_forward - whole, 0.0),
        launch_backward_s=np.maximum(launch_backward - gpu_backward, 0.0),
    )  # fmt: skip
