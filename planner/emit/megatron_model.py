"""A model as Megatron-LM's flags: attention, positions, MLP, experts, multi-token prediction; and
what it has no flag for.
"""

from __future__ import annotations

from planner.emit import megatron_kinds, megatron_missing
from planner.emit.program import Flag
from planner.errors import InputError
from planner.layout import Layout
from planner.specs.hardware import AMPERE
from planner.specs.layers import kinds
from planner.specs.megatron_letters import by_letters
from planner.specs.model import Mla, ModelSpec, Moe
from planner.specs.recipe import Recipe
from planner.specs.versions import KNOWN, Version, version_of

VOCAB_MULTIPLE = 128
"""Megatron's default of --make-vocab-size-divisible-by."""
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
ACTIVATIONS: dict[tuple[str, bool], list[Flag]] = {
    ("silu", True): [("--swiglu",)],
    ("gelu", False): [],
    ("squared_relu", False): [("--squared-relu",)],
    ("quick_gelu", True): [
        ("--quick-geglu",),
        ("--glu-linear-offset", "1.0"),
        ("--activation-func-clamp-value", "7.0"),
    ],
}
QK_NORMS = {"per_head": "--qk-layernorm", "l2": "--qk-l2-norm"}
NORM_PLACES = {"before": "before", "after": "after", "both": "before and after"}
FLEX_BACKENDS = (0, 16)
"""Since then the flexible dispatcher's library has a name; before it is DeepEP."""
WINDOWS, SHARED_GATE = (0, 15), (0, 16)
"""Versions that brought flags of attention windows, sinks and quick GeGLU, and of a gate on shared
experts.
"""
NEWEST: Version = (999, 0)
AUX_LOSS = {
    "none": ("aux_loss", "1e-3"),
    "linear": ("aux_loss", "1e-3"),
    "correction": ("seq_aux_loss", "1e-4"),
}
"""A start, no part of the plan: with a correction bias the loss only keeps single sequences in
balance.
"""


def missing_features(model: ModelSpec, version: Version = NEWEST) -> list[str]:
    """What the model has and Megatron-LM of a version has no flag for."""
    experts, lettered = megatron_kinds.experts(model), by_letters(model)
    norm = (
        f"{model.norms_per_layer} norms a layer, {NORM_PLACES[model.norm_place]} attention and MLP"
    )
    features = {
        f"{model.position} positions": model.position not in POSITIONS,
        "a LayerNorm without bias": model.norm == "layernorm_nobias",
        norm: (
            model.norm_place != "before"
            or (model.norms_per_layer != 2 and not model.parallel_block and not lettered)
        ),
        "a norm on the embedding": model.embedding_norm,
        "attention and MLP in parallel": model.parallel_block,
        f"{'a gated' if model.gated_mlp else 'an ungated'} MLP with {model.activation}": (
            (model.activation, model.gated_mlp) not in ACTIVATIONS
        ),
        f"a query and key norm of kind {model.qk_norm_kind}": (
            model.qk_norm and model.qk_norm_kind not in QK_NORMS
        ),
        f"biases on attention {model.attention_bias} and MLP {_biased(model)} together": (
            (model.attention_bias, _biased(model))
            not in (("none", False), ("qkv", False), ("qkvo", True))
        ),
        "attention in chunks": any(
            kind.window is not None and kind.window.kind == "chunked"
            for kind in kinds(model).values()
        ),
        **megatron_missing.missing(model, version),
        **(_missing_of_experts(model, experts) if experts else {}),
        **(_missing_before(model) if version < WINDOWS else {}),
        "a gate on shared experts": (
            version < SHARED_GATE and experts is not None and experts.shared_gate
        ),
    }
    return [feature for feature, is_missing in features.items() if is_missing]


def _missing_before(model: ModelSpec) -> dict[str, bool]:
    return {
        "attention in windows": any(kind.window for kind in kinds(model).values()),
        "attention sinks": model.attention_sinks,
        f"an MLP with {model.activation}": model.activation == "quick_gelu",
    }


def _missing_of_experts(model: ModelSpec, moe: Moe) -> dict[str, bool]:
    return {
        "a dense MLP beside the experts": moe.dense_residual,
        "a correction bias on softmax scores": (
            moe.router_bias == "correction" and moe.router_score != "sigmoid"
        ),
        "biases in the router but not in the experts, or the reverse": (
            (moe.router_bias == "linear") != moe.expert_bias
        ),
        "biases in the experts and shared experts": moe.expert_bias and moe.shared_ffn_size > 0,
        "biases in the experts but not in dense MLPs, or the reverse": (
            model.has_dense_mlp and moe.expert_bias != model.mlp_bias
        ),
        "a softmax over one chosen expert": (
            moe.experts_per_token == 1 and moe.router_score == "softmax"
        ),
    }


def _biased(model: ModelSpec) -> bool:
    """Linear layers have biases; Megatron has one switch for all of them."""
    moe = megatron_kinds.experts(model)
    return moe.expert_bias if moe else model.mlp_bias


def _refuse_what_is_missing(recipe: Recipe) -> None:
    model = recipe.model
    missing = missing_features(model, version_of("megatron", recipe.framework_version))
    if missing:
        out = _way_out(model)
        raise InputError(
            f"Megatron-LM {recipe.framework_version} must have a flag for every part of the model,"
            f" but {model.name} has {', '.join(missing)}; {out}"
        )
    if "megatron" not in model.frameworks:
        raise InputError(
            f"Megatron-LM must be able to express the model, but {model.name} is for"
            f" {', '.join(model.frameworks)} alone"
        )


def _way_out(model: ModelSpec) -> str:
    """The first version that has flags for all of the model."""
    for text in KNOWN["megatron"]:
        if not missing_features(model, version_of("megatron", text)):
            return f"{text} has them all"
    return "plan it, and write the launch files of another framework"


def _padded_vocab(recipe: Recipe, layout: Layout) -> int:
    multiple: int = VOCAB_MULTIPLE * layout.tp
    return -(-recipe.model.vocab_size // multiple) * multiple


def _bias_flags(model: ModelSpec) -> list[Flag]:
    if _biased(model):
        return []
    flags: list[Flag] = [("--disable-bias-linear",)]
    return flags + [("--add-qkv-bias",)] * (model.attention_bias == "qkv")


def _position_flags(recipe: Recipe) -> list[Flag]:
    model = megatron_kinds.with_attention(recipe.model)
    rows = (
        model.position_rows
        if model.position == "learned"
        else max(model.max_seq_length, recipe.seq_length)
    )
    flags: list[Flag] = [
        ("--position-embedding-type", POSITIONS[model.position]),
        ("--max-position-embeddings", str(rows)),
    ]
    if model.position == "rope":
        flags.append(("--rotary-base", str(round(model.rope_theta))))
        flags += [("--rotary-percent", str(model.rotary_share))] * (model.rotary_share < 1)
        flags += [("--no-rope-freq", str(model.no_rope_every))] * (model.no_rope_every > 0)
    return flags


def _attention_flags(model: ModelSpec) -> list[Flag]:
    """Heads, grouped or latent; norms of queries and keys; sinks; windows."""
    flags: list[Flag] = [("--num-attention-heads", str(model.num_heads))]
    if model.mla:
        flags += _latent_flags(model, model.mla)
    else:
        flags.append(("--kv-channels", str(model.head_dim)))
        if model.num_kv_heads != model.num_heads:
            flags += [("--group-query-attention",), ("--num-query-groups", str(model.num_kv_heads))]
    flags += [(QK_NORMS[model.qk_norm_kind],)] * (model.qk_norm and not model.mla)
    flags += [("--softmax-type", "learnable")] * model.attention_sinks
    return flags + [("--attention-output-gate",)] * model.attention_gate


def _latent_flags(model: ModelSpec, mla: Mla) -> list[Flag]:
    """The norms of the latents hang on --qk-layernorm. YaRN by a factor of 1 is plain rotary, and
    what the fused kernel takes.
    """
    queries: list[Flag] = [("--q-lora-rank", str(mla.q_lora_rank))] if mla.q_lora_rank else []
    return [
        ("--multi-latent-attention",),
        *queries,
        ("--kv-lora-rank", str(mla.kv_lora_rank)),
        ("--qk-head-dim", str(mla.qk_nope_dim)),
        ("--qk-pos-emb-head-dim", str(mla.qk_rope_dim)),
        ("--v-head-dim", str(mla.v_head_dim)),
        ("--kv-channels", str(mla.v_head_dim)),
        ("--qk-layernorm",),
        ("--rope-type", "yarn"),
        ("--rotary-scaling-factor", "1.0"),
    ]


def model_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """The network: what decides its parameters and its arithmetic.

    Raises InputError when Megatron-LM cannot express the model, and names the feature.
    """
    model = recipe.model
    _refuse_what_is_missing(recipe)
    flags: list[Flag] = [
        *megatron_kinds.flags(recipe, layout),
        ("--hidden-size", str(model.hidden_size)),
        ("--ffn-hidden-size", str(model.ffn_size)),
        *_attention_flags(megatron_kinds.with_attention(model)),
        *megatron_kinds.window_flags(model),
        *ACTIVATIONS[model.activation, model.gated_mlp],
        ("--normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm"),
        *_position_flags(recipe),
        *_bias_flags(model),
    ]
    flags += [("--untie-embeddings-and-output-weights",)] * (not model.tied_embeddings)
    flags += [("--mtp-num-layers", str(model.mtp_layers))] * (model.mtp_layers > 0)
    flags += [("--mtp-use-repeated-layer",)] * (model.mtp_layers > 0 and model.mtp_repeated)
    flags.append(("--padded-vocab-size", str(_padded_vocab(recipe, layout))))
    dropout = "0.1" if recipe.software.dropout else "0.0"
    return [
        *flags,
        ("--attention-dropout", dropout),
        ("--hidden-dropout", dropout),
        ("--seq-length", str(recipe.seq_length)),
    ]


def expert_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """The mixture of experts: which layers, how wide, how tokens are sent. Nothing for a dense
    model.
    """
    moe = megatron_kinds.experts(recipe.model)
    if moe is None:
        return []
    flags: list[Flag] = [
        ("--num-experts", str(moe.num_experts)),
        ("--moe-ffn-hidden-size", str(moe.expert_ffn_size)),
    ]
    flags += megatron_kinds.experts_flag(recipe.model)
    flags += [("--moe-latent-size", str(moe.latent_size))] * (moe.latent_size > 0)
    if moe.shared_ffn_size:
        flags.append(("--moe-shared-expert-intermediate-size", str(moe.shared_ffn_size)))
        flags += [("--moe-shared-expert-gate",)] * moe.shared_gate
    flags += _router_flags(moe)
    return flags + [("--moe-grouped-gemm",)] * (recipe.hardware.gpu.compute_capability >= AMPERE)


def _router_flags(moe: Moe) -> list[Flag]:
    balance, weight = AUX_LOSS[moe.router_bias]
    flags: list[Flag] = [
        ("--moe-router-topk", str(moe.experts_per_token)),
        ("--moe-router-dtype", "fp32"),
    ]
    flags += [("--moe-router-score-function", "sigmoid")] * (moe.router_score == "sigmoid")
    flags += [("--moe-router-pre-softmax",)] * (moe.router_score == "softmax_first")
    flags += [("--moe-router-enable-expert-bias",)] * (moe.router_bias == "correction")
    if moe.router_groups:
        flags += [
            ("--moe-router-num-groups", str(moe.router_groups)),
            ("--moe-router-group-topk", str(moe.groups_per_token)),
        ]
    flags += [("--moe-router-topk-scaling-factor", str(moe.router_scale))] * (moe.router_scale != 1)
    return [*flags, ("--moe-router-load-balancing-type", balance), ("--moe-aux-loss-coeff", weight)]
