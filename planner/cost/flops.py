"""Model FLOPs: what training needs, without recomputation."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cost.layer.attention import absorbed, core_dim, core_width
from planner.cost.layer.sparse import chosen_keys, index_loss, keys_of_latent
from planner.cost.layer.streams import entry_matrices, exit_matrices, stream_matmul_params
from planner.cost.layer.vision import as_recipe
from planner.cost.params.attention import index_matmul_params
from planner.cost.params.lora import adapter_params, layer_adapters
from planner.cost.params.mixers import linears
from planner.cost.params.trained import has_backward, trains, trains_all
from planner.specs.layers import counts, kinds, mtp_counts
from planner.specs.mixers import (
    GatedDeltaNet,
    Kda,
    LightningAttention,
    Mamba1,
    Mamba2,
    ShortConvolution,
)
from planner.specs.model import Indexer, ModelSpec
from planner.specs.recipe import Recipe


def attention_flops_per_token(recipe: Recipe, *, full_attention: bool = True) -> float:
    """Attention products of one token over the causal sequence, forward and backward.

    Formula: of each layer 12 s (a d), s a sample's length where samples are shorter than the
             sequence; latent attention's d is the mean of (n + r) and v, absorbed of (c + r) and c
             unless full; a third of it where no backward pass enters the layers; times seen_share()
             unless full
    Source:  [narayanan2021] eq. 3; [megatron-bridge] training/utils/flop_utils.py
    Assumes: full: the whole s x s square; causal masks need half. A layer of multi-token prediction
             is one more.
    """
    passes = 12.0 if has_backward(recipe) else 4.0
    each = [
        kind.model.num_heads
        * (core_dim(kind.model) if full_attention else core_width(kind))
        * (1.0 if full_attention else seen_share(recipe, kind.model))
        * kind.model.has_attention
        for kind in recipe.kinds
    ]
    return passes * sample_length(recipe) * _over_layers(recipe.model, each)


def scan_flops_per_token(recipe: Recipe) -> float:
    """Products of one token in the scans of state spaces, delta rules and linear attention, forward
    and backward.

    Formula: of each layer 3 times (1 where no backward pass enters the layers): Mamba 7 d N; delta
             rules 8 d e a value head and 2 K a channel that is convolved; lightning attention 4 d^2
             a head
    Source:  [megatron-core] training/training.py num_floating_point_operations; [minimax2025] for
             lightning attention's two state products
    Assumes: the recurrence itself: what chunks add to it is no work of the model.
    """
    each = [_scan_flops(model) for model in kinds(recipe.model).values()]
    return (3.0 if has_backward(recipe) else 1.0) * _over_layers(recipe.model, each)


def index_flops_per_token(recipe: Recipe, *, full_attention: bool = True) -> float:
    """Products of one token that choose the keys of its attention, forward and backward.

    Formula: of each layer with an index of its own 2 P of index_matrices() (4 P where its loss
             trains it) + 2 D i (e + 1), i heads e wide, of blocks 2 D i e; D = s/2 keys, s when
             full; the loss adds 4 S i (e + 1) + 2 S a d, S those that it compares, d as attention
             has it
    Source:  [megatron-bridge] training/utils/flop_utils.py (dsa): inputs are detached, so that no
             gradient leaves the index; [deepseek2025] eq. 1 and 2
    Assumes: all keys are scored.
    """
    each = [_index_flops(kind, full_attention) for kind in recipe.kinds]
    return _over_layers(recipe.model, each)


def _index_flops(kind: Recipe, full_attention: bool) -> float:
    model, s = kind.model, float(sample_length(kind))
    index, loss = model.index, index_loss(kind)
    if index is None or not model.chooses_keys:
        return 0.0
    scored = s if full_attention else s / 2
    score = index.num_heads * (index.head_dim + isinstance(index, Indexer))
    forward = 2.0 * index_matmul_params(model) + 2 * scored * score
    if loss == "none":
        return forward
    compared = chosen_keys(model, s) if loss == "chosen" and not full_attention else scored
    width = keys_of_latent(model) if absorbed(kind) else model.head_dim
    own = 2.0 * index_matmul_params(model) + 4 * compared * score
    return forward + own + 2 * compared * model.num_heads * width


def _scan_flops(model: ModelSpec) -> float:
    match model.mixer:
        case Mamba2() | Mamba1() as mixer:
            return 7.0 * mixer.inner_size * mixer.state_size
        case GatedDeltaNet() as mixer:
            keys = mixer.num_key_heads * mixer.key_head_dim
            values = mixer.num_value_heads * mixer.value_head_dim
            return 8.0 * mixer.key_head_dim * values + 2 * mixer.conv_kernel * (2 * keys + values)
        case Kda() as mixer:
            width = mixer.num_heads * mixer.head_dim
            return 8.0 * mixer.head_dim * width + 6 * mixer.conv_kernel * width
        case LightningAttention() as mixer:
            return 4.0 * mixer.num_heads * mixer.head_dim**2
        case ShortConvolution() as mixer:
            return 2.0 * mixer.conv_kernel * model.hidden_size
    return 0.0


def _over_layers(model: ModelSpec, each: Sequence[float]) -> float:
    """The sum over all layers, those of multi-token prediction too, of what one of each kind
    has.
    """
    layers = sum(count * value for count, value in zip(counts(model), each, strict=True))
    depth = sum(count * value for count, value in zip(mtp_counts(model), each, strict=True))
    return layers + model.mtp_layers * depth


def sample_length(recipe: Recipe) -> int:
    """Tokens of a sample, padding left out."""
    return recipe.mean_length or recipe.seq_length


def seen_share(recipe: Recipe, model: ModelSpec) -> float:
    """Keys that a layer's causal attention sees over the full square; model: of the layer's kind.

    Formula: 1/2; where a window w slides w/s - w^2 / (2 s^2), w / (2 s) in chunks, w/s both ways;
             chosen_keys() / s
    Source:  [hf-transformers] sliding_window, attention_chunk_size
    Assumes: nothing.
    """
    window, s = model.window, sample_length(recipe)
    if model.index:
        return chosen_keys(model, s) / s
    if window is None or (window.tokens >= s and window.kind != "both_ways"):
        return 0.5
    part = window.tokens / s
    return {"sliding": part - part * part / 2, "chunked": part / 2, "both_ways": part}[window.kind]


def attention_matmul_params(model: ModelSpec) -> float:
    """Parameters of the projections of one layer's attention, or of the mixer in its place: grouped
    heads, or latents' down- and up-projections.
    """
    mla, h = model.mla, float(model.hidden_size)
    own = float(sum(linear.outputs * linear.inputs for linear in linears(model)))
    if not model.has_attention:
        return own
    if not mla:
        return own + h * (sum(model.attention_inputs) + model.output_size)
    q, c, heads = mla.q_lora_rank, mla.kv_lora_rank, model.num_heads
    queries = h * q + q * model.query_size if q else h * model.query_size
    return (
        queries
        + h * (c + mla.qk_rope_dim)
        + c * heads * (mla.qk_nope_dim + mla.v_head_dim)
        + heads * mla.v_head_dim * h
        + h * heads * mla.head_gates
    )


def layer_matmul_params(model: ModelSpec) -> float:
    """Parameters of one layer that take part in the matrix products of one token, of a model whose
    layers are alike.

    Formula: attention's or its mixer's projections, those of streams, + (3 or 2) h f of a dense
             MLP, or of k experts and the shared ones, + router h E; routed experts l wide behind a
             latent, + 2 h l
    Source:  [narayanan2021] eq. 3; [deepseek2024] activated parameters
    Assumes: every token uses experts_per_token experts.
    """
    moe, h = model.moe, float(model.hidden_size)
    attention = attention_matmul_params(model) + stream_matmul_params(model)
    if not model.has_mlp:
        return attention
    if moe is None:
        return attention + model.mlp_matrices * h * model.ffn_size
    routed = moe.experts_per_token * moe.expert_ffn_size * moe.width(model.hidden_size)
    whole = h * (moe.shared_ffn_size + model.ffn_size * moe.dense_residual)
    around = h * moe.num_experts + 2 * h * moe.latent_size
    return attention + model.mlp_matrices * (routed + whole) + around


def active_matmul_params(model: ModelSpec) -> float:
    """Parameters that take part in the matrix products of one token.

    Formula: layer_matmul_params() of each layer + V h of the head; mtp_layers more of each, with 2
             h^2; what makes and joins streams
    Source:  [narayanan2021] eq. 3; [deepseek2024] sec. 2.2
    Assumes: the released vocabulary.
    """
    h = float(model.hidden_size)
    layers = _over_layers(model, [layer_matmul_params(kind) for kind in kinds(model).values()])
    ends = model.mtp_layers * (2 * h * h + model.vocab_size * h) + model.vocab_size * h
    around = (*entry_matrices(model), *exit_matrices(model))
    ends += float(sum(outputs * inputs for outputs, inputs in around))
    return layers + ends


def trained_matmul_params(recipe: Recipe) -> float:
    """Of the parameters in the matrix products of one token those that get a gradient, the
    adapters' not counted.

    Formula: active_matmul_params - frozen parts: attention's projections, MLP or experts and
             router, V h of the head
    Source:  [hu2021] sec. 4: pre-trained weights get no gradients
    Assumes: as active_matmul_params.
    """
    model = recipe.model
    head = float(model.vocab_size * model.hidden_size)
    layers = active_matmul_params(model) - head * (1 + model.mtp_layers)
    if trains_all(recipe):
        return active_matmul_params(model)
    attention = _over_layers(
        model, [attention_matmul_params(kind) for kind in kinds(model).values()]
    )
    kept = (attention, "attention"), (layers - attention, "mlp"), (head, "head")
    return sum(size for size, part in kept if trains(recipe, part))


def adapter_matmul_params(recipe: Recipe) -> float:
    """Parameters of adapters that one token uses."""
    total = 0.0
    for count, kind in zip(counts(recipe.model), recipe.kinds, strict=True):
        moe = kind.model.moe
        times = {"routed": moe.experts_per_token} if moe else {}
        for adapter in layer_adapters(kind):
            total += count * times.get(adapter.of, 1) * float(adapter_params(recipe, (adapter,)))
    return total


def tower_flops(recipe: Recipe, *, full_attention: bool) -> float:
    """Floating-point operations of the vision tower in one step over all GPUs.

    Formula: patches of all images (2 P + attention), P of a layer's products, of a patch's values,
             and of the projector over patches_per_token; 3 times where it is trained, a patch's
             values 2 times
    Source:  [megatron-bridge] training/utils/flop_utils.py; [hf-transformers] vision classes
    Assumes: windows see what they are wide; nothing is computed for padding.
    """
    tower = recipe.tower
    if tower is None or not recipe.images_per_sample:
        return 0.0
    question = as_recipe(recipe, tower)
    passes = 3 if trains(recipe, "vision") else 1
    each = [layer_matmul_params(kind) for kind in kinds(question.model).values()]
    joined = tower.projector_parameters / tower.patches_per_token
    entering = min(passes, 2) * tower.patch_values * tower.hidden_size  # pixels get no gradient
    products = passes * (_over_layers(question.model, each) + joined) + entering
    attention = attention_flops_per_token(question, full_attention=full_attention)
    patches = recipe.global_batch_size * recipe.images_per_sequence * question.seq_length
    return patches * (2.0 * products + attention)


def model_flops(recipe: Recipe, *, full_attention: bool) -> float:
    """Floating-point operations of one step over all GPUs; of frozen weights only what a gradient
    passes through, padding left out.

    Formula: tokens (2 P + 2 P_passed + 2 P_trained + 6 P_adapters + attention + scans + index), P
             what a token uses (6 P when all is trained), P_passed all of it unless no backward pass
             enters the layers (then the head), attention times seen_share when causal is counted;
             and tower_flops()
    Source:  [narayanan2021] eq. 3 without recomputation; [hu2021]
    Assumes: the look-up of the embedding is not counted, the head is; recomputation and padding are
             no work of the model.
    """
    model = recipe.model
    attention = attention_flops_per_token(recipe, full_attention=full_attention)
    used = active_matmul_params(model)
    passed = used if has_backward(recipe) else float(model.vocab_size * model.hidden_size)
    products = 2.0 * (used + passed + trained_matmul_params(recipe)) + 6.0 * adapter_matmul_params(
        recipe
    )
    mixed = scan_flops_per_token(recipe) + index_flops_per_token(
        recipe, full_attention=full_attention
    )
    tower = tower_flops(recipe, full_attention=full_attention)
    return recipe.tokens * recipe.used_share * (products + attention + mixed) + tower


def layer_flops(kind: Recipe) -> float:
    """Model FLOPs of one layer of a kind in one step over all GPUs, causal.

    Formula: model_flops() with a layer more - without
    Source:  [narayanan2021] eq. 3
    Assumes: as model_flops. kind: one of Recipe.kinds.
    """
    more = kind.model.model_copy(update={"num_layers": kind.model.num_layers + 1})
    longer = kind.model_copy(update={"model": more})
    return model_flops(longer, full_attention=False) - model_flops(kind, full_attention=False)
