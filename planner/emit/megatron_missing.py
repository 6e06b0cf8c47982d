"""What of a model's layers Megatron-LM of a version has no flag for."""

from __future__ import annotations

from planner.emit.megatron_kinds import attends, every_kind, indexers, reuse
from planner.specs import megatron_letters
from planner.specs.layers import kinds, layer_kinds, mtp_kinds
from planner.specs.megatron_letters import by_letters, letter
from planner.specs.mixers import GatedDeltaNet, Mamba2
from planner.specs.model import ModelSpec, Moe
from planner.specs.versions import Version

VARIANTS, REUSED_INDEX, SHARED_MTP = (0, 16), (0, 19), (0, 17)
"""Versions that brought flags of delta nets, sparse attention, output gates and latent experts; of
indexers that reuse an earlier layer's choice; of one set of weights for all depths of prediction.
"""
VARIANT_MTP: Version = (0, 19)
"""Since then a layer of prediction behind delta nets or sparse attention is one of them too."""
MIXERS = {
    "mamba1": "Mamba layers",
    "kda": "Kimi delta attention",
    "lightning": "lightning attention",
    "short_convolution": "short convolutions",
}
"""Mixers that it has not, by kind."""
ATTENTION = (
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "value_head_dim",
    "attention_gate",
    "attention_sinks",
    "qk_norm",
    "position",
    "rope_theta",
    "rotary_share",
)
"""Of every layer with attention the same."""


def missing(model: ModelSpec, version: Version) -> dict[str, bool]:
    """What of the layers has no flag in a version, as megatron_model.missing_features lists it."""
    each, lettered = every_kind(model), by_letters(model)
    found: dict[str, bool] = {}
    for kind in each:
        found |= {part: True for part, there in _of_layer(kind, version).items() if there}
    of_gpt = all(
        kind.has_mlp and (attends(kind) or isinstance(kind.mixer, GatedDeltaNet)) for kind in each
    )
    return {
        **found,
        "layers that are neither letters of a pattern nor attention or a delta net with an MLP": (
            not found and not lettered and not of_gpt
        ),
        **(_letters(each, version) if lettered else {}),
        **(_of_prediction(model, lettered, version) if model.mtp_layers else {}),
        **_that_differ(model, each, lettered),
    }


def _letters(each: tuple[ModelSpec, ...], version: Version) -> dict[str, bool]:
    """Those that a version does not have."""
    letters = sorted(set(map(letter, each)))
    return {f"the letter {x} of a pattern": version < megatron_letters.SINCE[x] for x in letters}


def _of_layer(kind: ModelSpec, version: Version) -> dict[str, bool]:
    mixer, mla, moe = kind.mixer, kind.mla, kind.moe
    mamba = mixer if isinstance(mixer, Mamba2) else None
    plain = mamba is None or (
        (mamba.conv_kernel, mamba.conv_bias, mamba.projection_bias, mamba.gated_norm)
        == (4, True, False, True)
    )
    return {
        MIXERS.get(mixer.kind, "") if mixer else "": mixer is not None and mixer.kind in MIXERS,
        "Mamba-2 beside attention": mamba is not None and mamba.beside_attention,
        "a Mamba-2 mixer without convolution of 4 taps, its bias and a gated norm": not plain,
        "gated delta nets": isinstance(mixer, GatedDeltaNet) and version < VARIANTS,
        "gates on latent attention": bool(mla and mla.head_gates),
        "gated attention": kind.attention_gate and (mla is not None or version < VARIANTS),
        "an indexer that chooses the keys": bool(mla and mla.indexer) and version < VARIANTS,
        "indexers that reuse a choice": bool(mla and mla.indexer and mla.indexer.shared)
        and version < REUSED_INDEX,
        "block-sparse attention": kind.block_sparse is not None,
        "value heads of another size": kind.value_head_dim is not None and mla is None,
        "keys that are the values": kind.keys_are_values,
        "keys and values of an earlier layer": kind.shared_kv,
        "experts behind a latent": bool(moe and moe.latent_size) and version < VARIANTS,
        "a norm on the latent of experts": bool(moe and moe.latent_norm),
        "scaled routers": bool(moe and moe.router_scales),
        "several streams of the hidden state (AltUp)": kind.altup_streams > 0,
        "low-rank products beside attention (Laurel)": kind.laurel_rank > 0,
        "per-layer inputs": kind.per_layer_inputs is not None,
    }


def _of_prediction(model: ModelSpec, lettered: bool, version: Version) -> dict[str, bool]:
    predicted, last = mtp_kinds(model), kinds(model)[layer_kinds(model)[-1]]
    varied = isinstance(last.mixer, GatedDeltaNet) or bool(last.mla and last.mla.indexer)
    return {
        "multi-token prediction in a pattern": lettered and version < megatron_letters.STAGES,
        "layers of multi-token prediction unlike the last": (
            not lettered and tuple(map(_choosing, predicted)) != (_choosing(last),)
        ),
        "multi-token prediction by delta nets or sparse attention": (
            not lettered and varied and version < VARIANT_MTP
        ),
        "one set of weights for all multi-token prediction": (
            model.mtp_repeated and version < SHARED_MTP
        ),
    }


def _choosing(kind: ModelSpec) -> ModelSpec:
    """The layer with an indexer of its own: layers of prediction are counted anew, and the first
    one chooses its keys itself.
    """
    if not kind.mla or not kind.mla.indexer:
        return kind
    own = kind.mla.model_copy(
        update={"indexer": kind.mla.indexer.model_copy(update={"shared": False})}
    )
    return kind.model_copy(update={"mla": own})


def _that_differ(model: ModelSpec, each: tuple[ModelSpec, ...], lettered: bool) -> dict[str, bool]:
    """What may not differ between layers."""
    attention = [kind for kind in each if attends(kind)]
    heads = {tuple(getattr(kind, name) for name in ATTENTION) for kind in attention}
    mlas = {kind.mla and kind.mla.model_copy(update={"indexer": None}) for kind in attention}
    own = {
        kind.mla.indexer.model_copy(update={"shared": False})
        for kind in attention
        if kind.mla and kind.mla.indexer
    }
    sparse = set() if lettered else {bool(kind.mla and kind.mla.indexer) for kind in attention}
    several = max(len(heads), len(mlas), len(own), len(sparse))
    mixed = {
        "attention": several > 1,
        "windows": len({kind.window for kind in attention if kind.window}) > 1,
        "mixers": any(
            len({kind.mixer for kind in each if isinstance(kind.mixer, one)}) > 1
            for one in (Mamba2, GatedDeltaNet)
        ),
        "experts": len({_every(kind.moe) for kind in each if kind.has_mlp and kind.moe}) > 1,
        "MLPs": len({kind.ffn_size for kind in each if kind.has_mlp and not kind.moe}) > 1,
        "norms": len({(kind.norms_per_layer, kind.norm_place) for kind in each}) > 1,
    }
    return {
        **{f"layers whose {part} differ": there for part, there in mixed.items()},
        "indexers at other layers than every so many": bool(indexers(model)) and not reuse(model),
    }


def _every(moe: Moe) -> Moe:
    return moe.model_copy(update={"first_dense_layers": 0, "moe_every": 1})
