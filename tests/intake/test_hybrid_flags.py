"""Layers of several kinds in Megatron-LM's words, read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.params.layer import mtp_params, total_params
from planner.errors import InputError
from planner.interpret import layout_knobs
from planner.interpret.layer_lists import named_layers
from planner.interpret.megatron_kinds import implied
from planner.interpret.megatron_model import model
from planner.specs import library
from planner.specs.layers import kinds, layer_kinds, mtp_kinds
from planner.specs.megatron_letters import parsed, spread
from planner.specs.mixers import GatedDeltaNet, Mamba2
from planner.specs.model import ModelSpec

PLAIN = {
    "num_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "seq_length": 1024,
    "max_position_embeddings": 1024,
    "vocab_size": 50_257,
}
NEMOTRON = {
    "position_embedding_type": "none",
    "normalization": "RMSNorm",
    "squared_relu": True,
    "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True,
    "group_query_attention": True,
    "num_query_groups": 2,
    "kv_channels": 128,
    "num_attention_heads": 32,
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "vocab_size": 131_072,
    "seq_length": 8192,
}


def read(**flags: Any) -> ModelSpec:
    return model({**PLAIN, **flags}, "flags")


def test_letters_are_layers_of_their_own() -> None:
    """NVIDIA/Megatron-LM@d98e8a64 tests/functional_tests, nemotron3_super_release_gb200_sm; the
    published network has 120,668,707,840 parameters.
    """
    super_120b = read(
        **NEMOTRON,
        num_layers=None,
        hidden_size=4096,
        ffn_hidden_size=2688,
        hybrid_layer_pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
        "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME/*E/*E",
        mamba_num_heads=128,
        num_experts=512,
        moe_router_topk=22,
        moe_shared_expert_intermediate_size=5376,
        moe_latent_size=1024,
    )
    preset = library.model("nemotron3-120b-a12b")
    assert total_params(super_120b) == preset.parameters == 120_668_707_840
    assert layer_kinds(super_120b) == layer_kinds(preset)
    assert (super_120b.mtp_layers, super_120b.mtp_pattern) == (2, "attention experts")


def test_the_parts_of_a_nightly_run() -> None:
    """nemotron3_5_lightning_nightly of the same: 31,577,940,288 parameters, one set of weights for
    both depths of prediction.
    """
    flags = {
        "num_layers": None,
        "hidden_size": 2688,
        "hybrid_layer_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME/*E/*E",
        "ffn_hidden_size": 1856,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "mamba_num_groups": 8,
        "mamba_state_dim": 128,
        "num_experts": 128,
        "moe_router_topk": 6,
        "moe_shared_expert_intermediate_size": 3712,
    }
    twice = read(**NEMOTRON, **flags)
    once = read(**NEMOTRON, **flags, mtp_use_repeated_layer=True)
    assert total_params(once) == 31_577_940_288
    assert 2 * int(mtp_params(once)) == int(mtp_params(twice))


@pytest.mark.parametrize(
    "flags",
    [
        {"hybrid_override_pattern": "M*-M*-MM", "is_hybrid_model": True},
        {"hybrid_layer_pattern": "M*-|M*-|M|M"},
        {"hybrid_layer_pattern": "M*-M*-MM", "num_layers": 5},
    ],
)
def test_one_pattern_in_every_spelling(flags: dict[str, Any]) -> None:
    found = read(**flags)
    assert layer_kinds(found) == (*("mamba", "attention", "mlp") * 2, "mamba", "mamba")
    mamba = kinds(found)["mamba"].mixer
    assert isinstance(mamba, Mamba2)
    # twice the hidden width over the heads' own
    assert (mamba.num_heads, mamba.head_dim, mamba.num_groups) == (32, 64, 8)


@pytest.mark.parametrize(
    ("layers", "attention", "mlp", "letters"),
    [
        (10, 0.2, 0.0, "MMM*MM*MMM"),
        (10, 0.1, 0.1, "MMMMM*MMM-"),
        (7, 0.4, 0.6, "-*-*-*-"),
        (48, 0.25, 0.25, "MM-*MM-*MM*-MM*-MM*-MM*-M*M-M*M-M*M-M*M-*MM-*MM-"),
        (52, 0.08, 0.5, "M-M-M--M-M*-M-M-M--M*-M-M-M-M-M*--M-M-M-M*-M--M-M-M-"),
    ],
)
def test_ratios_spread_as_megatron_spreads_them(
    layers: int, attention: float, mlp: float, letters: str
) -> None:
    """What [megatron-core] pattern_from_ratios of 0.19.2 returns."""
    assert spread(layers, attention, mlp) == letters
    found = read(num_layers=layers, hybrid_attention_ratio=attention, hybrid_mlp_ratio=mlp)
    assert len(layer_kinds(found)) == layers
    assert layer_kinds(found).count("attention") == letters.count("*")


def test_a_stack_of_mamba_alone() -> None:
    spec = ["megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"]
    found = read(spec=spec)
    assert isinstance(found.mixer, Mamba2) and not found.has_mlp and not found.kinds


@pytest.mark.parametrize(
    ("pattern", "pp", "v", "stages"),
    [
        ("M-M-|M*M-|M-M*|M-M-", 2, 2, ""),
        ("M-M-|M*M-|M-M*|M-M-/*-/*-", 4, 1, ""),
        ("M-M|M*M-M|-M/*-", 3, 1, "Ettt|ttttt|ttmL"),
        ("M-M|M*M-M|-M", 2, 1, "Ettt|ttttt|ttL"),  # that 3 stages are not 2 is a rule's to say
        ("M-M*", 2, 1, ""),
    ],
)
def test_stages_stand_in_the_pattern(pattern: str, pp: int, v: int, stages: str) -> None:
    flags = {"hybrid_layer_pattern": pattern, "pipeline_model_parallel_size": pp}
    layout, _ = layout_knobs.megatron(flags | implied(flags), 4, 16)
    assert (layout.v, layout.stage_layout) == (v, stages)


def test_prediction_in_an_argument_of_its_own() -> None:
    found = read(hybrid_override_pattern="M*M*", mtp_hybrid_override_pattern="*-", mtp_num_layers=2)
    assert (found.num_layers, found.mtp_layers, found.mtp_pattern) == (4, 2, "attention mlp")


def test_prediction_may_have_layers_that_the_model_has_not() -> None:
    """A layer of attention: 4 h^2 and biases of 4 h, a norm of 2 h; the join: 2 h^2 and three
    norms of 2 h; the MLP: 8 h^2 and 5 h, a norm of 2 h.
    """
    found, h = read(hybrid_layer_pattern="MM/*-"), 1024
    assert mtp_params(found) == 4 * h * h + 6 * h + 8 * h * h + 7 * h + 2 * h * h + 6 * h


def test_linear_attention_between_full_layers() -> None:
    found = read(
        experimental_attention_variant="gated_delta_net",
        linear_attention_freq=4,
        linear_num_value_heads=32,
        attention_output_gate=True,
        swiglu=True,
    )
    assert layer_kinds(found) == (*("delta",) * 3, "attention") * 2
    delta = kinds(found)["delta"].mixer
    assert isinstance(delta, GatedDeltaNet)
    assert (delta.num_key_heads, delta.num_value_heads, delta.conv_kernel) == (16, 32, 4)
    assert kinds(found)["attention"].attention_gate


INDEXER: dict[str, Any] = {
    "multi_latent_attention": True,
    "q_lora_rank": 64,
    "experimental_attention_variant": "dsa",
    "dsa_indexer_n_heads": 4,
    "dsa_indexer_head_dim": 32,
    "dsa_indexer_topk": 128,
}


def test_sparse_attention_shares_its_choice() -> None:
    """Which layers choose for themselves: [megatron-core] is_dsa_skip_topk_layer of 0.19.2."""
    found = read(
        **INDEXER,
        dsa_indexer_topk_freq=3,
        dsa_indexer_skip_topk_offset=2,
    )
    own = [name == "attention" for name in layer_kinds(found)]
    assert own == [True, True, False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("words", "loss"),
    [
        ({}, "none"),
        ({"dsa_indexer_use_sparse_loss": True}, "none"),
        ({"dsa_indexer_loss_coeff": 0.01}, "all"),
        ({"dsa_indexer_loss_coeff": "0.01", "dsa_indexer_use_sparse_loss": True}, "chosen"),
    ],
)
def test_what_trains_an_indexer_and_predicts_behind_it(words: dict[str, Any], loss: str) -> None:
    """[megatron-core] dsa.py of 0.19.2: no loss without a coefficient; layers of prediction count
    from 1 and choose for themselves.
    """
    found = read(
        **INDEXER,
        dsa_indexer_topk_freq=2,
        mtp_num_layers=1,
        **words,
    )
    last = kinds(found)[layer_kinds(found)[-1]]
    [predicts] = mtp_kinds(found)
    assert last.mla and last.mla.indexer and last.mla.indexer.shared
    assert predicts.chooses_keys and predicts.mla and predicts.mla.indexer
    assert predicts.mla.indexer.loss == loss


@pytest.mark.parametrize(
    ("frequency", "experts"),
    [
        ("2", [1, 0, 1, 0, 1, 0, 1, 0]),  # every second from the first on
        ("([0]*3+[1]*5)", [0, 0, 0, 1, 1, 1, 1, 1]),
        ("([0]+[1])*4", [0, 1] * 4),
        ([1, 1, 0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 1, 1, 0, 1]),
    ],
)
def test_layers_with_experts(frequency: Any, experts: list[int]) -> None:
    found = read(num_experts=4, moe_layer_freq=frequency)
    each = kinds(found)
    assert [int(each[name].moe is not None) for name in layer_kinds(found)] == experts


@pytest.mark.parametrize(
    ("flags", "windows"),
    [
        ({"window_size": "127,0", "window_attn_skip_freq": "2"}, [128, 0] * 4),
        ({"window_size": "(4095, 0)"}, [4096] * 8),
        (
            {"window_size": [511, 0], "window_attn_skip_freq": "([0]*2+[1,1,1,0,1,1])"},
            [0, 0, 512, 512, 512, 0, 512, 512],
        ),
        (
            {"window_size": "15,0", "hybrid_layer_pattern": "*M*M", "window_attn_skip_freq": 3},
            [16, 0, 0, 0],
        ),
        ({"window_size": "-1,0"}, [0] * 8),
        ({}, [0] * 8),
    ],
)
def test_windows(flags: dict[str, Any], windows: list[int]) -> None:
    found = read(**flags)
    each = kinds(found)
    seen = [each[name].window for name in layer_kinds(found)]
    assert [window.tokens if window else 0 for window in seen] == windows


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"hybrid_layer_pattern": "MX"}, "the letters"),
        ({"hybrid_layer_pattern": "M*/*E/EE"}, "the same layers for each depth"),
        ({"hybrid_layer_pattern": "*D"}, "not both"),
        ({"hybrid_layer_pattern": "ME"}, "--num-experts"),
        ({"hybrid_layer_pattern": "MD"}, "dsa_indexer_n_heads"),
        ({"hybrid_layer_pattern": "|/MM"}, "1 to 10,000 layers"),
        ({"hybrid_attention_ratio": 0.7, "hybrid_mlp_ratio": 0.7}, "shares of 1"),
        ({"experimental_attention_variant": "gdn2"}, "gated_delta_net or dsa"),
        ({"experimental_attention_variant": "gated_delta_net"}, "linear_attention_freq must be"),
        ({"num_experts": 4, "moe_layer_freq": "[0]*3"}, "for each of 8 layers"),
        ({"num_experts": 4, "moe_layer_freq": "__import__('os')"}, "for each of 8 layers"),
    ],
)
def test_what_megatron_refuses_is_refused_by_name(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(**flags)


@given(st.text(alphabet="[]()01,*+ 9", max_size=60))
def test_a_list_of_layers_is_as_long_as_the_model(text: str) -> None:
    try:
        assert len(named_layers({"x": text}, "x", 8, lambda i, n: i % n == 0)) == 8
    except InputError:
        return


@pytest.mark.parametrize("text", ["[1]*999999999", "[1]*9999*9999*9999", "(" * 5000, "[0]+" * 9000])
def test_a_list_of_layers_is_bounded(text: str) -> None:
    with pytest.raises(InputError, match="for each of 8 layers"):
        named_layers({"x": text}, "x", 8, lambda i, n: True)


@given(st.text(alphabet="M*-EG|/", max_size=40))
def test_a_pattern_is_written_as_it_was_read(text: str) -> None:
    try:
        found = parsed(text)
    except InputError:
        return
    assert parsed(str(found)) == found and len(found.letters) <= len(text)
