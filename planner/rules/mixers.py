"""Megatron-LM's rules of layers that are no attention with an MLP: Mamba-2, gated delta nets,
sparse attention, and hybrids by letters.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.errors import InputError
from planner.layout import Layout, Layouts, Mask
from planner.rules.rule import Rule, divides, near_divisors, quotient
from planner.specs import stage_layout
from planner.specs.layers import kinds, mtp_kinds
from planner.specs.megatron_letters import STAGES, by_letters
from planner.specs.mixers import GatedDeltaNet, Mamba2
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import setting

DELTA_CP, SPARSE_CP = (0, 18), (0, 19)
"""Versions that brought context parallelism of gated delta nets and of sparse attention."""


def _kinds(recipe: Recipe) -> Iterator[ModelSpec]:
    yield from kinds(recipe.model).values()
    if recipe.model.mtp_layers:
        yield from mtp_kinds(recipe.model)


def _mamba(recipe: Recipe) -> Mamba2 | None:
    mixers = (kind.mixer for kind in _kinds(recipe))
    return next((mixer for mixer in mixers if isinstance(mixer, Mamba2)), None)


def _delta_net(recipe: Recipe) -> GatedDeltaNet | None:
    mixers = (kind.mixer for kind in _kinds(recipe))
    return next((mixer for mixer in mixers if isinstance(mixer, GatedDeltaNet)), None)


def _is_sparse(recipe: Recipe) -> bool:
    return any(kind.mla is not None and kind.mla.indexer is not None for kind in _kinds(recipe))


def _split(heads: int, layout: Layouts) -> Mask:
    """Whether heads divide over tp and then over cp."""
    return divides(layout.tp, heads) & divides(layout.cp, quotient(heads, layout.tp))


def _tried(count: int, of: str, layout: Layout) -> str:
    """`it has 8 groups: try tp 8 and cp 1`."""
    tp = near_divisors(count, layout.tp)[0]
    return f"it has {count} {of}: try tp {tp} and cp 1"


def _mamba_heads(recipe: Recipe, layout: Layouts) -> Mask:
    mixer = _mamba(recipe)
    return mixer is None or _split(mixer.num_heads, layout)


def _mamba_heads_out(recipe: Recipe, layout: Layout) -> str:
    mixer = _mamba(recipe)
    return _tried(mixer.num_heads, "heads", layout) if mixer else ""


def _mamba_groups(recipe: Recipe, layout: Layouts) -> Mask:
    """A cp rank has whole groups, or a group is on several cp ranks."""
    mixer = _mamba(recipe)
    if mixer is None:
        return True
    groups = quotient(mixer.num_groups, layout.tp)
    over_cp = np.where(groups < layout.cp, divides(groups, layout.cp), divides(layout.cp, groups))
    return (
        divides(layout.tp, mixer.num_groups) & over_cp & (mixer.num_heads % mixer.num_groups == 0)
    )


def _mamba_groups_out(recipe: Recipe, layout: Layout) -> str:
    mixer = _mamba(recipe)
    if mixer is None:
        return ""
    if mixer.num_heads % mixer.num_groups:
        return "heads must be a multiple of groups, whatever the layout"
    return _tried(mixer.num_groups, "groups", layout)


def _delta_heads(recipe: Recipe, layout: Layouts) -> Mask:
    mixer = _delta_net(recipe)
    if mixer is None:
        return True
    whole = mixer.num_value_heads % mixer.num_key_heads == 0
    return _split(mixer.num_key_heads, layout) & _split(mixer.num_value_heads, layout) & whole


def _delta_heads_out(recipe: Recipe, layout: Layout) -> str:
    mixer = _delta_net(recipe)
    return _tried(mixer.num_key_heads, "key heads", layout) if mixer else ""


def projected(mixer: Mamba2 | GatedDeltaNet | None) -> int:
    """Width of the first product's output; 0 without a mixer."""
    if isinstance(mixer, Mamba2):
        states = 2 * mixer.num_groups * mixer.state_size
        return 2 * mixer.inner_size + states + mixer.num_heads
    if isinstance(mixer, GatedDeltaNet):
        keys = mixer.num_key_heads * mixer.key_head_dim
        values = mixer.num_value_heads * mixer.value_head_dim
        return 2 * (keys + values + mixer.num_value_heads)
    return 0


def _aligned(recipe: Recipe, layout: Layouts) -> Mask:
    if not recipe.precision.startswith(("fp8", "mxfp8")):
        return True
    size = 32 if recipe.precision == "mxfp8" else 16
    return projected(_mamba(recipe)) % 16 == 0 and projected(_delta_net(recipe)) % size == 0


def _sparse_gathers(recipe: Recipe, layout: Layouts) -> Mask:
    gathers = setting(recipe, "cp_comm_type", "p2p") == "all_gather"
    return (layout.cp == 1) | (not _is_sparse(recipe)) | (gathers & (layout.cp_a2a == 1))


def _even_stages(recipe: Recipe, layout: Layouts) -> Mask:
    if not by_letters(recipe.model):
        return True
    accounted = layout.account_for_embedding + layout.account_for_loss
    return (layout.v == 1) & (accounted == 0) & (not layout.stage_layout)


def _predicts_last(recipe: Recipe, layout: Layouts) -> Mask:
    """A string belongs to one layout."""
    if not layout.stage_layout or not by_letters(recipe.model):
        return True
    try:
        return all("m" not in stage for stage in stage_layout.stages(layout.stage_layout)[:-1])
    except InputError:
        return True  # another rule says so


MEGATRON = (
    Rule(
        "Mamba heads split over tp and cp",
        _mamba_heads,
        "tp must divide the heads of Mamba and cp those of a rank, but got tp={layout.tp},"
        " cp={layout.cp} and {recipe.model.name}",
        _mamba_heads_out,
    ),
    Rule(
        "Mamba groups split over tp and cp",
        _mamba_groups,
        "tp must divide the groups of Mamba, and cp divide or be a multiple of those of a rank, but"
        " got tp={layout.tp}, cp={layout.cp} and {recipe.model.name}",
        _mamba_groups_out,
    ),
    Rule(
        "delta nets split over tp and cp",
        _delta_heads,
        "tp * cp must divide the key heads and the value heads of gated delta nets, but got"
        " tp={layout.tp}, cp={layout.cp} and {recipe.model.name}",
        _delta_heads_out,
    ),
    # NOTE: no parser catches it: until then each cp rank would start from an empty state.
    Rule(
        "delta nets run under cp since 0.18",
        lambda recipe, layout: (layout.cp == 1) | (_delta_net(recipe) is None),
        "gated delta nets have context parallelism since Megatron-LM 0.18, but got cp={layout.cp}"
        " and {recipe.framework_version}",
        lambda recipe, layout: "try cp 1, or a later version",
        before=DELTA_CP,
    ),
    Rule(
        "widths of mixers align",
        _aligned,
        "the first product of Mamba and of delta nets must have a multiple of 16 outputs (of delta"
        " nets in mxfp8 32) for {recipe.precision}, but got {recipe.model.name}",
        lambda recipe, layout: "try bf16",
    ),
    Rule(
        "sparse attention runs under cp since 0.19",
        lambda recipe, layout: (layout.cp == 1) | (not _is_sparse(recipe)),
        "sparse attention has context parallelism since Megatron-LM 0.19, but got cp={layout.cp}"
        " and {recipe.framework_version}",
        lambda recipe, layout: "try cp 1, or a later version",
        before=SPARSE_CP,
    ),
    Rule(
        "sparse attention gathers under cp",
        _sparse_gathers,
        "sparse attention gathers keys and values over cp (switch cp_comm_type all_gather), but got"
        " cp={layout.cp}, cp_a2a={layout.cp_a2a}",
        lambda recipe, layout: "try cp 1, or --switch cp_comm_type=all_gather",
        since=SPARSE_CP,
    ),
    Rule(
        "sparse attention needs sequence parallelism",
        lambda recipe, layout: (layout.tp == 1) | (layout.sp == 1) | (not _is_sparse(recipe)),
        "sparse attention must use sequence parallelism when tp > 1, but got tp={layout.tp} with sp"
        " off",
        lambda recipe, layout: "turn sequence parallelism on, or try tp 1",
        since=SPARSE_CP,
    ),
    Rule(
        "hybrids have even stages before 0.17",
        _even_stages,
        "hybrids have no virtual stages, stage layouts and accounted ends before Megatron-LM 0.17,"
        " but got v={layout.v} and {recipe.framework_version}",
        lambda recipe, layout: "try v 1 and an even split, or a later version",
        before=STAGES,
    ),
    Rule(
        "hybrids predict on the last stage",
        _predicts_last,
        "multi-token prediction of a hybrid is on the last stage, but got the stage layout"
        " {layout.stage_layout!r}",
        lambda recipe, layout: "put all m before the L",
    ),
)
"""Source: [megatron-core] core/ssm/mamba_mixer.py, core/ssm/mamba_context_parallel.py,
core/transformer/transformer_config.py (experimental_attention_variant),
core/ssm/gated_delta_net/common.py, core/ssm/mamba_block.py of 0.16,
core/transformer/experimental_attention_variant/absorbed_mla.py, core/models/hybrid/hybrid_model.py,
training/arguments.py (hybrid layer pattern).
"""
