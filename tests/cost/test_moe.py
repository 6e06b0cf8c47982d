"""Layers with experts: sizes, exchanges, memory and FLOPs against counts by hand and published
figures.
"""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.flops import active_matmul_params, model_flops, seen_share
from planner.cost.layer.attention import attention_times
from planner.cost.layer.expert_exchange import exchange, exchanges_s, reached
from planner.cost.layer.kernels import gemm_s, grouped_gemm_s
from planner.cost.layer.kinds import layer_time
from planner.cost.layer.moe import expert_rows
from planner.cost.memory.activations import activations, kept
from planner.cost.memory.expert_activations import expert_parts
from planner.cost.memory.rank_memory import rank_memory, ranks
from planner.cost.network.collectives import group
from planner.cost.params.layer import active_params, embedding_params, total_params
from planner.cost.params.per_rank import expert_ranks, layers_params
from planner.cost.params.stages import Layers, split
from planner.estimate import estimate
from planner.layout import Layout, module_mask
from planner.specs import library
from planner.specs.layers import counts, kinds
from planner.specs.model import Moe
from planner.specs.recipe import Recipe


def recipe(
    model: str,
    cluster: str = "h100-sxm",
    stack: str = "megatron",
    seq: int = 4096,
    gpus: int = 256,
    **more: object,
) -> Recipe:
    return Recipe(
        model=library.model(model),
        hardware=library.hardware(cluster),
        software=library.stack(stack),
        gpus=gpus,
        seq_length=seq,
        global_batch_size=2048,
        **more,
    )


def moe_of(question: Recipe) -> Moe:
    assert question.model.moe is not None
    return question.model.moe


@pytest.mark.parametrize(
    ("model", "mtp", "seq", "tflop_a_token"),
    [
        # TFLOP/s over tokens/s that NeMo's and Megatron-Bridge's pages print for one run
        # (mbridge_cards, nemo_to_2025, nemo_automodel)
        ("deepseek-v3", 0, 4096, 961.0 / 3848),
        ("deepseek-v3", 1, 4096, 557.0 / 2139),
        ("qwen3-235b-a22b", 0, 4096, 907.0 / 6131),
        ("qwen3-30b-a3b", 0, 4096, 666.0 / 28934),
        ("gpt-oss-120b", 0, 4096, 535.23 / 16398.332),  # half its layers see 128 tokens
        ("kimi-k2", 0, 4096, 189.0 / 924),
    ],
)
def test_flops_a_token_are_those_that_frameworks_print(
    model: str, mtp: int, seq: int, tflop_a_token: float
) -> None:
    question = recipe(model, seq=seq)
    question = question.model_copy(
        update={"model": question.model.model_copy(update={"mtp_layers": mtp})}
    )
    found = model_flops(question, full_attention=False) / question.tokens / 1e12
    assert found == pytest.approx(tflop_a_token, rel=0.005)


def test_products_of_a_token_are_its_active_parameters() -> None:
    """All active parameters but the embedding table, norms and the balancing bias take part in
    products.
    """
    model = library.model("deepseek-v3").model_copy(update={"mtp_layers": 0})
    assert active_matmul_params(model) == pytest.approx(
        active_params(model) - model.vocab_size * model.hidden_size, rel=1e-4
    )


def test_a_window_hides_what_it_does_not_see() -> None:
    """gpt-oss: half its 24 layers see 128 of 4,096 tokens: a row of the triangle sees 128 - 128^2 /
    8192 in the mean.
    """
    question = recipe("gpt-oss-20b")
    pairs = [min(i + 1, 128) for i in range(4096)]
    assert counts(question.model) == (12, 12)
    shares = [seen_share(question, kind) for kind in kinds(question.model).values()]
    assert shares == pytest.approx([sum(pairs) / 4096**2, 0.5], rel=1e-3)
    short = question.model_copy(update={"seq_length": 128})
    assert [seen_share(short, kind) for kind in kinds(question.model).values()] == [0.5, 0.5]
    whole = question.model_copy(
        update={"model": question.model.model_copy(update={"window": None})}
    )
    [full] = (float(attention_times(one, Layout())[0]) for one in whole.kinds)
    windowed, plain = (float(attention_times(one, Layout())[0]) for one in question.kinds)
    assert plain == full
    assert windowed < 0.2 * full


def test_tokens_of_an_expert_are_shared_out_evenly() -> None:
    """DeepSeek-V3: 32 ranks with 4,096 tokens each, 8 of 256 experts a token: 4,096 tokens an
    expert; tp halves them, etp doubles.
    """
    question = recipe("deepseek-v3", stack="nemo")
    rows = [
        float(expert_rows(question, Layout(ep=32, **knobs), moe_of(question)))
        for knobs in ({}, {"tp": 2, "sp": 1}, {"etp": 2})
    ]
    assert rows == [4096, 2048, 8192]


def test_copies_over_all_ranks_are_tokens_times_choices() -> None:
    question = recipe("qwen3-235b-a22b")
    for tp, etp, ep in ((1, 1, 8), (4, 1, 16), (4, 4, 2)):
        layout = Layout(tp=tp, etp=etp, ep=ep, sp=1)
        local = float(expert_rows(question, layout, moe_of(question))) * 128 / ep
        assert local * ep == pytest.approx(4096 / tp * etp * ep * 8)


def test_grouped_products_are_products_launched_once() -> None:
    hardware = library.hardware("h100-sxm")
    one = float(gemm_s(hardware, "bf16", 4096, 4096, 7168, prepared=True))
    assert float(grouped_gemm_s(hardware, "bf16", 1, 4096, 4096, 7168)) == pytest.approx(one)
    fixed = hardware.kernels.gemm["bf16"].fixed_us * 1e-6
    assert float(grouped_gemm_s(hardware, "bf16", 8, 4096, 4096, 7168)) == pytest.approx(
        8 * one - 7 * fixed
    )


def test_experts_of_a_node_talk_over_nvlink_whatever_tp_is() -> None:
    """The stride of ep is etp, not tp cp: with tp 8, etp 1 and ep 8 the exchange stays in the
    box.
    """
    hardware = library.hardware("h100-sxm")
    inside = group(hardware, 1, 8)
    assert (int(inside.domain), int(inside.nodes)) == (8, 1)
    question = recipe("qwen3-235b-a22b")
    near, far = (
        float(exchange(question, layout, moe_of(question), 512, 2.0).dispatch_s)
        for layout in (Layout(tp=8, ep=8, sp=1), Layout(tp=8, ep=8, etp=8, sp=1))
    )
    assert 2 * near < far


def test_a_token_reaches_so_many_of_the_nodes() -> None:
    """8 of 128 experts over 4 nodes, drawn at random, and DeepSeek-V3's limit of 4 of 8 groups."""
    moe, limited = moe_of(recipe("qwen3-235b-a22b")), moe_of(recipe("deepseek-v3"))
    drawn = np.random.default_rng(0).integers(0, 4, (20_000, 8))
    assert float(reached(moe, 4)) == pytest.approx(
        np.mean([len(set(row)) for row in drawn.tolist()]), rel=0.01
    )
    assert (
        float(reached(limited, 8)) == pytest.approx(4)
        and float(reached(limited, 4)) <= 4
        and float(reached(moe, 1)) == 1
    )


@pytest.mark.parametrize(("ranks", "logical_gbytes_per_s"), [(16, 90), (32, 61)])
def test_deepep_dispatch_over_infiniband(ranks: int, logical_gbytes_per_s: float) -> None:
    """DeepEP's README: 4,096 tokens of 7,168 in fp8, 8 of 256 experts in 4 of 8 groups, CX7: bytes
    to all nodes reached over time.
    """
    question = recipe("deepseek-v3", "h100-sxm", "nemo-2025")
    moe = moe_of(question)
    took = float(exchange(question, Layout(ep=ranks), moe, 4096, 1.0).dispatch_s)
    logical = 4096 * 7168 * float(reached(moe, ranks / 8))
    assert logical / took / 1e9 == pytest.approx(logical_gbytes_per_s, rel=0.15)


def test_eight_bits_halve_the_way_there_not_back() -> None:
    question = recipe("deepseek-v3", "h100-sxm", "nemo-2025", precision="fp8-blockwise")
    narrow = question.software.with_figures({"experts.quantized_dispatch": True})
    moe, layout = moe_of(question), Layout(ep=64)
    wide = exchanges_s(question, layout, moe, 4096)
    half = exchanges_s(question.model_copy(update={"software": narrow}), layout, moe, 4096)
    assert float(half[0] / wide[0]) == pytest.approx(0.75, rel=0.02) and float(
        half[1]
    ) == pytest.approx(float(wide[1]))


def test_nothing_is_exchanged_alone() -> None:
    question = recipe("mixtral-8x7b")
    assert [float(x) for x in exchanges_s(question, Layout(), moe_of(question), 4096)] == [0.0, 0.0]


def test_expert_activations_by_hand() -> None:
    """Qwen3-30B-A3B, one rank, 4,096 tokens: 8 copies each; inputs 2h, both branches 2 x 2 f,
    activation 2 f, in bytes.
    """
    question = recipe("qwen3-30b-a3b")
    parts = {name: float(value) for name, value in expert_parts(question, Layout()).items()}
    copies, h, f = 4096 * 8, 2048, 768
    assert parts == {
        "expert_in": 2 * copies * h,
        "expert_middle": 4 * copies * f,
        "expert_out": 2 * copies * f,
        "shared": 0.0,
        "routing": 4096 * 8 * 128,
    }
    [one] = question.kinds
    whole = kept(one, Layout())
    assert float(whole.layer_bytes) < float(whole.whole_bytes) * 1.0001
    for module, saved in (("moe_act", 2 * copies * f), ("moe", sum(parts.values()))):
        less = kept(one, Layout(recompute=1, recompute_modules=module_mask([module])))
        assert float(whole.layer_bytes - less.layer_bytes) == pytest.approx(saved)


def test_latent_attention_keeps_heads_until_their_projection_is_repeated() -> None:
    """DeepSeek-V3, 128 heads: q and k of 192, v and output of 128, in 2 bytes; recomputing the
    up-projection keeps latents alone.
    """
    question = recipe("deepseek-v3").kinds[0]
    whole = kept(question, Layout()).layer_bytes
    less = kept(
        question, Layout(recompute=1, recompute_modules=module_mask(["mla_up_proj"]))
    ).layer_bytes
    assert float(whole - less) == 4096 * 128 * 2 * (192 + 192 + 128)
    repeated = layer_time(
        question, Layout(recompute=1, recompute_modules=module_mask(["mla_up_proj"]))
    ).recompute_s
    assert 0 < float(repeated) < float(layer_time(question, Layout()).gemm_forward_s)


def test_all_ranks_together_hold_the_model() -> None:
    """Experts once over ep and pp, everything else once over pp; with tp 1 and edp 1 the sum over
    ranks is the model's.
    """
    question = recipe("deepseek-v3")
    model = question.model.model_copy(update={"mtp_layers": 0})
    layout = Layout(ep=16, pp=1, dp=16)
    dense, routed = layers_params(model, layout, Layers((3, 58)))
    ends = 2 * embedding_params(model, 1) + model.hidden_size
    padding = 2 * (embedding_params(model, 1) - model.vocab_size * model.hidden_size)
    assert int(dense) + 16 * int(routed) + ends - padding == total_params(model)
    assert (
        float(expert_ranks(layout)) == 1
        and float(expert_ranks(Layout(tp=4, dp=64, pp=2, ep=8))) == 32
    )


def test_optimizer_states_of_experts_are_shared_by_edp_not_dp() -> None:
    """Megatron: 12 bytes a parameter over dp cp, of experts over edp = gpus / (etp ep pp)."""
    question = recipe("qwen3-30b-a3b", gpus=64)
    layout = Layout(dp=64, ep=8)
    rank = ranks(question, layout, split(question, layout))[0]
    found = rank_memory(question, layout, activations(question, layout), rank).optimizer_bytes
    experts = 48 * 128 // 8 * 3 * 2048 * 768
    assert float(rank.expert_params) == experts
    assert float(found) == pytest.approx(
        12 * (float(rank.params) - experts) / 64 + 12 * experts / 8
    )


def test_columns_know_both_kinds_of_layers_as_the_simulation_does() -> None:
    """DeepSeek-V3's three dense layers lie on the first stage: closed form and simulated order
    agree stage by stage.
    """
    question = recipe("deepseek-v3", "gb200-nvl72", "megatron-bridge")
    layout = Layout(pp=4, dp=64, ep=32, m=32, first_layers=15, last_layers=14, recompute=2)
    exact, closed = estimate(question, layout, exact=True), estimate(question, layout)
    assert [stage.layers for stage in exact.stages] == [15, 16, 16, 14]
    assert exact.step_s == pytest.approx(float(closed.step_s), rel=0.02)
    assert exact.memory_bytes == pytest.approx(float(closed.memory_bytes), rel=0.02)
    light, heavy = exact.stages[0].forward_s, exact.stages[1].forward_s
    assert 12 / 16 < light / heavy < 15.5 / 16


def test_hidden_exchanges_cost_less() -> None:
    question = recipe("qwen3-235b-a22b", stack="nemo")
    hiding = question.software.with_figures({"experts.overlap_share": 0.7})
    layout = Layout(tp=2, sp=1, ep=32, etp=1)
    plain, hidden = (
        layer_time(one.kinds[0], layout)
        for one in (question, question.model_copy(update={"software": hiding}))
    )
    assert float(hidden.ep_forward_s) == pytest.approx(0.3 * float(plain.ep_forward_s))
    assert float(hidden.forward_s + hidden.backward_s) < float(plain.forward_s + plain.backward_s)
