"""Parameters of experts and latents by rank and stage, against Megatron-LM's models, published
totals and counting one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from planner.cost.params.attention import attention_params
from planner.cost.params.experts import (
    expert_params,
    routed_params,
    router_params,
    shared_params,
)
from planner.cost.params.layer import (
    layer_params,
    mtp_params,
    mtp_stage_params,
    routed_layer_params,
    total_params,
)
from planner.cost.params.stages import Layers, chunk_kinds, chunk_layers, split
from planner.layout import Layout, Layouts, Numeric
from planner.specs import library
from planner.specs.layers import below, kinds
from planner.specs.model import ModelSpec
from tests import documents


def has_experts(model: ModelSpec, layer: int) -> bool:
    """Hugging Face: first_k_dense_replace, interleave_moe_layer_step, decoder_sparse_step."""
    assert model.moe is not None
    return layer >= model.moe.first_dense_layers and (layer + 1) % model.moe.moe_every == 0


def with_experts(model: ModelSpec, layers: Layers) -> Numeric:
    """Of so many layers those with experts."""
    return layers.times(kind.moe is not None for kind in kinds(model).values())


def expert_shares(model: ModelSpec, layout: Layouts) -> list[Numeric]:
    """Of the layers of the first, a middle and the last rank those with experts."""
    share = split(documents.recipe(model), layout)
    return [with_experts(model, rank) for rank in (share.first, share.middle, share.last)]


def moe_layer_params(
    model: ModelSpec, tp: Numeric = 1, ep: Numeric = 1, etp: Numeric = 1
) -> Numeric:
    """Parameters of a layer with experts on one rank."""
    return layer_params(model, tp) + routed_layer_params(model, ep, etp)


@pytest.mark.parametrize("name", ["deepseek-v3", "llama4-maverick", "ling-1t", "mixtral-8x7b"])
def test_layers_with_experts_are_those_counted_one_by_one(name: str) -> None:
    model = library.model(name)
    for layer in range(model.num_layers + 1):
        found = with_experts(model, Layers(below(model, layer)))
        assert found == sum(has_experts(model, i) for i in range(layer))


def test_mixtral_by_hand() -> None:
    """8 experts of 3 x 4096 x 14336; the router 8 x 4096; attention 2 x 4096^2 + 2 x 4096 x 1024;
    two norms.
    """
    model = library.model("mixtral-8x7b")
    assert model.moe is not None
    expert, attention = 3 * 4096 * 14_336, 2 * 4096**2 + 2 * 4096 * 1024
    assert expert_params(model, model.moe) == expert
    assert router_params(model, model.moe) == 8 * 4096
    assert attention_params(model) == attention
    assert moe_layer_params(model, ep=4) == 2 * expert + 8 * 4096 + attention + 2 * 4096


def test_deepseek_v3_attention_by_the_shapes_of_its_weights() -> None:
    """q_a_proj [1536, 7168], q_b_proj [24576, 1536], kv_a_proj [576, 7168], kv_b_proj [32768, 512],
    o_proj [7168, 16384], two norms.
    """
    shapes = 1536 * 7168 + 24_576 * 1536 + 576 * 7168 + 32_768 * 512 + 7168 * 16_384 + 1536 + 512
    assert attention_params(library.model("deepseek-v3")) == shapes


def test_ranks_of_latent_attention_repeat_what_goes_down() -> None:
    """Transformer Engine's down-projections and the latents' norms are on every rank: 8 ranks hold
    7 copies more.
    """
    model = library.model("deepseek-v3")
    down = (1536 + 576) * 7168 + 1536 + 512
    assert 8 * attention_params(model, 8) == attention_params(model) + 7 * down


def test_ranks_of_experts_hold_them_once() -> None:
    """ep 32 x etp 2 ranks hold all routed experts; the router is on each of them."""
    model = library.model("qwen3-235b-a22b")
    assert model.moe is not None
    assert 32 * 2 * routed_params(model, model.moe, 32, 2) == routed_params(model, model.moe)
    assert (
        4 * shared_params(library.model("deepseek-v3"), library.model("deepseek-v3").moe, 4)
        == 3 * 7168 * 2048
    )  # type: ignore[arg-type]


def test_multi_token_prediction_of_deepseek_v3() -> None:
    """The module's own weights: one layer with experts, [7168, 14336] and three norms; on a stage
    of its own with a copy of the table.
    """
    model = library.model("deepseek-v3")
    own = moe_layer_params(model) + 14_336 * 7168 + 3 * 7168
    assert mtp_params(model) == own == 11_610_068_224
    assert mtp_stage_params(model, Layout(pp=1)) == own
    assert mtp_stage_params(model, Layout(pp=2)) == own + 129_280 * 7168
    assert mtp_stage_params(library.model("llama3-8b"), Layout(pp=2)) == 0


def chunk_experts(model: ModelSpec, layout: Layout) -> list[list[Numeric]]:
    """[rank][chunk] layers with experts."""
    rows = chunk_kinds(documents.recipe(model), layout)
    return [[with_experts(model, chunk) for chunk in row] for row in rows]


def layouts(model: ModelSpec) -> Iterator[Layout]:
    for pp in (1, 2, 3, 4, 6, 8, 16):
        for v in (1, 2, 3, 4, 8):
            if model.num_layers % (pp * v) == 0 and (pp > 1 or v == 1):
                yield Layout(pp=pp, v=v)


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "llama4-maverick", "ling-1t", "glm4.5-355b-a32b", "deepseek-v2"]
)
def test_stages_have_the_experts_of_their_layers(name: str) -> None:
    """The split by formula is that of the chunks, counted layer by layer."""
    model = library.model(name)
    model = model.model_copy(update={"num_layers": model.num_layers // 16 * 16 + 32})
    found = list(layouts(model))
    assert len(found) > 10
    for layout in found:
        chunks, experts = chunk_layers(model, layout), chunk_experts(model, layout)
        order = [(rank, chunk) for chunk in range(layout.v) for rank in range(layout.pp)]
        flags = iter([has_experts(model, layer) for layer in range(model.num_layers)])
        for rank, chunk in order:
            assert experts[rank][chunk] == sum(next(flags) for _ in range(chunks[rank][chunk])), (
                layout
            )
        ranks = [sum(row) for row in experts]
        middle = ranks[-2] if layout.pp > 2 else ranks[0]
        assert expert_shares(model, layout) == [ranks[0], middle, ranks[-1]], layout


def test_stated_end_stages_have_the_dense_layers() -> None:
    """DeepSeek-V3 on 8 stages of 7, 8, ..., 6 layers: the three dense ones are in the first."""
    model = library.model("deepseek-v3")
    layout = Layout(pp=8, first_layers=7, last_layers=6)
    assert [sum(row) for row in chunk_experts(model, layout)] == [4, 8, 8, 8, 8, 8, 8, 6]
    assert expert_shares(model, layout) == [4, 8, 6]


@pytest.mark.parametrize("name", ["deepseek-v3", "llama4-maverick", "llama3-70b"])
def test_columns_are_their_rows(name: str) -> None:
    model = library.model(name)
    one = [
        Layout(tp=tp, pp=pp, v=v, ep=ep, etp=etp)
        for tp, pp, v, ep, etp in [
            (1, 1, 1, 1, 1),
            (2, 4, 1, 8, 2),
            (8, 16, 1, 32, 1),
            (4, 2, 5, 16, 4),
            (2, 61, 1, 64, 2),
        ]
    ]
    many = Layout(
        **{
            knob: np.array([getattr(x, knob) for x in one])
            for knob in ("tp", "pp", "v", "ep", "etp")
        }
    )
    share = expert_shares(model, many)
    each = moe_layer_params(model, many.tp, many.ep, many.etp)
    ends = mtp_stage_params(model, many)
    for row, layout in enumerate(one):
        assert [np.broadcast_to(x, 5)[row] for x in share] == expert_shares(model, layout)
        assert each[row] == moe_layer_params(model, layout.tp, layout.ep, layout.etp)
        assert ends[row] == mtp_stage_params(model, layout)


def test_dense_models_have_no_layer_with_experts() -> None:
    model = library.model("llama3-70b")
    assert expert_shares(model, Layout(pp=4, v=5)) == [0, 0, 0]
    assert routed_layer_params(model, 8) == 0


def test_indexer_of_glm_5() -> None:
    """Transformers 5.24, GlmMoeDsaIndexer: wq_b [4096, 2048], wk [128, 6144], k_norm 2 x 128,
    weights_proj [32, 6144], in 78 layers.
    """
    model = library.model(
        str(Path(__file__).parents[1] / "data" / "configs" / "zai-org--GLM-5.json")
    )
    assert model.mla is not None
    without = model.model_copy(update={"mla": model.mla.model_copy(update={"indexer": None})})
    assert total_params(model) - total_params(without) == 78 * (
        4096 * 2048 + 128 * 6144 + 256 + 32 * 6144
    )
