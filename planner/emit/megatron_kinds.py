"""Layers of several kinds as Megatron-LM's flags: letters with the bounds of stages, variants of
attention, sizes of each mixer.
"""

from __future__ import annotations

from planner.emit.program import Flag
from planner.layout import Layout
from planner.specs import megatron_letters, stage_layout
from planner.specs.layers import kinds, layer_kinds, mtp_kinds
from planner.specs.megatron_letters import by_letters
from planner.specs.mixers import GatedDeltaNet, Mamba2
from planner.specs.model import Indexer, ModelSpec, Moe, Window
from planner.specs.recipe import Recipe
from planner.specs.versions import Version, version_of

HYBRIDS: Version = (0, 18)
"""Since then hybrids have their own program; before, it is Mamba's."""

INDEX_LOSS = "0.001"
"""Weight of an indexer's own loss. Source: [megatron-bridge] models/glm_moe_dsa."""


def attends(kind: ModelSpec) -> bool:
    """Whether a layer has attention."""
    return kind.mixer is None or (isinstance(kind.mixer, Mamba2) and kind.mixer.beside_attention)


def every_kind(model: ModelSpec) -> tuple[ModelSpec, ...]:
    """Of the layers and of those of multi-token prediction."""
    return (*kinds(model).values(), *(mtp_kinds(model) if model.mtp_layers else ()))


def with_attention(model: ModelSpec) -> ModelSpec:
    """A layer that has attention, which says what flags of it say; the model where none has."""
    return next(filter(attends, every_kind(model)), model)


def experts(model: ModelSpec) -> Moe | None:
    """The experts of the layers that have them."""
    with_experts = (kind.moe for kind in every_kind(model) if kind.has_mlp)
    return next(filter(None, with_experts), None)


def _windows(model: ModelSpec) -> list[Window | None]:
    """Of each layer."""
    each = {name: kind.window if attends(kind) else None for name, kind in kinds(model).items()}
    return [each[name] for name in layer_kinds(model)]


def indexers(model: ModelSpec) -> list[Indexer]:
    """Of each layer that has latent attention; empty where none has an indexer."""
    each = {
        name: kind.mla.indexer
        for name, kind in kinds(model).items()
        if attends(kind) and kind.mla and kind.mla.indexer
    }
    return [each[name] for name in layer_kinds(model) if name in each]


def reuse(model: ModelSpec) -> tuple[int, int] | None:
    """(every, first): layers up to `first`, and from there every so many, choose keys themselves;
    None where the layers follow no such rule.
    """
    shared = [indexer.shared for indexer in indexers(model)]
    if True not in shared:
        return 1, 0
    first = shared.index(True)
    every = next((i for i, x in enumerate(shared[first:], 1) if not x), len(shared) + 1)
    holds = all(x == (max(i - first + 1, 0) % every != 0) for i, x in enumerate(shared))
    return (every, first) if first and holds else None


def flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """Which layers there are, and the sizes of what they mix the sequence with."""
    model = recipe.model
    version = version_of("megatron", recipe.framework_version)
    out = _layers(recipe, layout, version)
    for mixer in dict.fromkeys(kind.mixer for kind in every_kind(model)):
        if isinstance(mixer, Mamba2):
            out += _mamba(mixer)
        if isinstance(mixer, GatedDeltaNet):
            out += _delta_net(mixer)
    sparse = indexers(model)
    return out + (_indexer(model, sparse[0]) if sparse else [])


def _layers(recipe: Recipe, layout: Layout, version: Version) -> list[Flag]:
    model = recipe.model
    if by_letters(model):
        return _pattern(recipe, layout, version)
    out: list[Flag] = [("--num-layers", str(model.num_layers))]
    is_linear = [isinstance(kinds(model)[name].mixer, GatedDeltaNet) for name in layer_kinds(model)]
    if any(is_linear):
        out.append(("--experimental-attention-variant", "gated_delta_net"))
        out.append(("--linear-attention-freq", _listed(is_linear)))
    if indexers(model):
        out.append(("--experimental-attention-variant", "dsa"))
    return out


def _pattern(recipe: Recipe, layout: Layout, version: Version) -> list[Flag]:
    model = recipe.model
    package = "hybrid.hybrid_layer_specs" if version >= HYBRIDS else "mamba.mamba_layer_specs"
    stack = "hybrid_stack_spec" if version >= HYBRIDS else "mamba_stack_spec"
    spec = ("--spec", f"megatron.core.models.{package}", stack)
    if version < megatron_letters.STAGES:
        return [
            ("--num-layers", str(model.num_layers)),
            ("--hybrid-override-pattern", str(megatron_letters.pattern(model))),
            ("--is-hybrid-model",),
            spec,
        ]
    sizes = stage_layout.dealt(model.num_layers, layout) if layout.pp > 1 else ()
    return [("--hybrid-layer-pattern", str(megatron_letters.pattern(model, sizes))), spec]


def _listed(layers: list[bool]) -> str:
    """Every so many layers one that is not named, or a list."""
    every = layers.index(False) + 1 if False in layers else 0
    if every > 1 and all(x == ((i + 1) % every != 0) for i, x in enumerate(layers)):
        return str(every)
    return listed([int(x) for x in layers])


def listed(entries: list[int]) -> str:
    """A list as Megatron evaluates it: `([0]*3+[1]*58)`."""
    return f"({entries})".replace(" ", "")


def _mamba(mixer: Mamba2) -> list[Flag]:
    return [
        ("--mamba-num-heads", str(mixer.num_heads)),
        ("--mamba-head-dim", str(mixer.head_dim)),
        ("--mamba-num-groups", str(mixer.num_groups)),
        ("--mamba-state-dim", str(mixer.state_size)),
    ]


def _delta_net(mixer: GatedDeltaNet) -> list[Flag]:
    return [
        ("--linear-num-key-heads", str(mixer.num_key_heads)),
        ("--linear-num-value-heads", str(mixer.num_value_heads)),
        ("--linear-key-head-dim", str(mixer.key_head_dim)),
        ("--linear-value-head-dim", str(mixer.value_head_dim)),
        ("--linear-conv-kernel-dim", str(mixer.conv_kernel)),
    ]


def _indexer(model: ModelSpec, indexer: Indexer) -> list[Flag]:
    out: list[Flag] = [
        ("--dsa-indexer-n-heads", str(indexer.num_heads)),
        ("--dsa-indexer-head-dim", str(indexer.head_dim)),
        ("--dsa-indexer-topk", str(indexer.keys_per_query)),
    ]
    if indexer.loss != "none":
        out.append(("--dsa-indexer-loss-coeff", INDEX_LOSS))
    if indexer.loss == "chosen":
        out.append(("--dsa-indexer-use-sparse-loss",))
    every, first = reuse(model) or (1, 0)
    if every > 1:
        out.append(("--dsa-indexer-topk-freq", str(every)))
        out.append(("--dsa-indexer-skip-topk-offset", str(first)))
    return out


def window_flags(model: ModelSpec) -> list[Flag]:
    """A window of w tokens holds the token itself and w - 1 before it."""
    each = _windows(model)
    window = next(filter(None, each), None)
    if window is None:
        return []
    out: list[Flag] = [("--window-size", f"{window.tokens - 1},0")]
    asked = [
        bool(kinds(model)[name].window) or not attends(kinds(model)[name])
        for name in layer_kinds(model)
    ]
    return (
        out
        if all(asked)
        else [*out, ("--window-attn-skip-freq", _listed([x is not None for x in each]))]
    )


def experts_flag(model: ModelSpec) -> list[Flag]:
    """Which layers have experts, where not all have: nothing by letters, which say it."""
    has = [int(kinds(model)[name].moe is not None) for name in layer_kinds(model)]
    if by_letters(model) or all(has):
        return []
    first = has.index(1)
    if all(has[first:]):
        return [("--moe-layer-freq", f"([0]*{first}+[1]*{len(has) - first})")]
    return [("--moe-layer-freq", listed(has))]


def entry(recipe: Recipe) -> str:
    """The program that trains the model."""
    if not by_letters(recipe.model):
        return "pretrain_gpt.py"
    version = version_of("megatron", recipe.framework_version)
    return "pretrain_hybrid.py" if version >= HYBRIDS else "pretrain_mamba.py"
