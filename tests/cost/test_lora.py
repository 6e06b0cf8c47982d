"""Adapters and frozen weights: published parameter counts, states and FLOPs by hand, what is
sharded, what is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.flops import model_flops
from planner.cost.layer.kinds import layer_time
from planner.cost.memory.activations import kept
from planner.cost.memory.states import state_bytes
from planner.cost.params.stages import Layers
from planner.cost.params.trained import frozen_params, trained_layers, trained_total
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.workload import APART, Lora
from planner.units import GIB
from tests import documents

ALL: Any = APART
HUGGING: Any = ("q_proj", "v_proj")


def question(model: str = "llama3-70b", gpus: int = 8, **changes: Any) -> Recipe:
    return documents.recipe(model, gpus, **{"seq_length": 4096, "global_batch_size": 32, **changes})


# Counts that PEFT's print_trainable_parameters shows: README of huggingface/peft (Llama-2-7B,
# q_proj and v_proj, r 8) and logs of
# runs with r 16 on all linears ("Number of trainable parameters = 41,943,040" of Llama-3-8B,
# 207,093,760 of Llama-3-70B).
@pytest.mark.parametrize(
    "model, lora, published",
    [
        ("llama2-7b", Lora(rank=8, targets=HUGGING), 4_194_304),
        ("llama3-8b", Lora(rank=16, targets=ALL), 41_943_040),
        ("llama3-70b", Lora(rank=16, targets=ALL), 207_093_760),
    ],
)
def test_parameters_of_adapters_are_the_published_ones(
    model: str, lora: Lora, published: int
) -> None:
    assert trained_total(question(model, lora=lora)) == published


def test_fused_linears_have_one_adapter() -> None:
    """Llama-3-8B, 32 layers: qkv 32 (4,096 + 6,144), proj 32 (4,096 + 4,096), fc1 32 (4,096 +
    28,672), fc2 32 (14,336 + 4,096).
    """
    by_hand = 32 * 32 * (10_240 + 8_192 + 32_768 + 18_432)
    assert trained_total(question("llama3-8b", lora=Lora(rank=32))) == by_hand
    one = question("llama3-8b", lora=Lora(rank=32))
    assert sum(trained_layers(one, Layout(tp=4), Layers((32,)))) == by_hand / 4


def test_experts_of_a_rank_share_an_adapter() -> None:
    """Qwen3-30B-A3B, 48 layers: attention of 32 heads and 4 key-value heads of 128, experts of
    width 768; 8 ranks hold one adapter each.
    """
    one = question("qwen3-30b-a3b", lora=Lora(rank=8))
    attention = 8 * (2048 + 4096 + 2 * 512) + 8 * (4096 + 2048)
    experts = 8 * (2048 + 2 * 768) + 8 * (768 + 2048)
    assert trained_layers(one, Layout(ep=8), Layers((48,))) == (48 * attention, 48 * experts)


def test_states_of_llama3_70b_on_eight_gpus_by_hand() -> None:
    """tp 8: 2 bytes a frozen weight; adapters 2 + 4 + 12 bytes; nothing of the frozen ones but the
    weights.

    80 layers of 855,654,400 less the norms' 16,384 over 8, tables of 129,024 (126 x 1,024) x 8,192
    each over 8, norms whole.
    """
    one = question(lora=Lora(rank=16))
    said = estimate(one, Layout(tp=8, dp=1, m=32, sp=1, zero=0), exact=True).memory
    layers = 80 * ((855_654_400 - 16_384) / 8 + 16_384)
    frozen = layers + 2 * 129_024 * 8_192 / 8 + 8_192
    adapters = (
        80 * 16 * ((8_192 + 10_240) + (8_192 + 8_192) + (8_192 + 57_344) + (28_672 + 8_192)) / 8
    )
    assert said.weights_bytes == pytest.approx(2 * (frozen + adapters), rel=1e-9)
    assert said.gradients_bytes == pytest.approx(4 * adapters, rel=1e-9)
    assert said.optimizer_bytes == pytest.approx(12 * adapters, rel=1e-9)


@pytest.mark.parametrize("zero, share", [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1 / 64)])
def test_only_sharded_weights_shard_what_is_frozen(zero: int, share: float) -> None:
    weights, gradients, states = state_bytes(question(), Layout(dp=64, zero=zero), 0.0, None, 1e9)
    assert (weights, gradients, states) == (2e9 * share, 0.0, 0.0)


def test_fsdp_shards_frozen_weights_with_its_own() -> None:
    """torch's FSDP keeps 2 bytes a frozen weight, in shards; below full sharding its gathered copy
    is whole, as of a trained one.
    """
    fsdp = question("llama3-8b", stack="torch-fsdp", framework="torch")
    assert state_bytes(fsdp, Layout(dp=8, zero=3), 0.0, None, 8e9)[0] == 2e9
    assert state_bytes(fsdp, Layout(dp=8, zero=2), 0.0, None, 8e9)[0] == 2e9 + 16e9


def test_a_frozen_layer_goes_back_for_its_input_alone() -> None:
    whole, half = (
        layer_time(question(**more), Layout(tp=8, sp=1)) for more in ({}, {"lora": Lora(rank=16)})
    )
    assert half.gemm_weight_s == 0 and whole.gemm_weight_s > 0
    assert (half.gemm_forward_s, half.gemm_input_s) == (whole.gemm_forward_s, whole.gemm_input_s)
    assert half.adapter_forward_s > 0 and half.adapter_backward_s > 1.5 * half.adapter_forward_s


def test_nothing_goes_back_before_the_first_trained_weight() -> None:
    head: Any = ("embedding", "attention", "mlp", "norms")
    one, of = question(frozen=head), Layout(tp=8, sp=1)
    found = layer_time(one, of)
    assert found.backward_s == 0 and found.forward_s > 0
    assert kept(one, of).layer_bytes == 0
    # Forward of all, backward of the head alone: tokens (2 P + 4 V h + a third of attention).
    model = one.model
    table = model.vocab_size * model.hidden_size
    layers = 80 * (855_654_400 - 2 * 8_192)
    attention = 4 * 80 * 4096 * 8192 / 2
    assert model_flops(one, full_attention=False) == pytest.approx(
        one.tokens * (2 * layers + 6 * table + attention), rel=1e-12
    )


# NeMo's performance page, container 24.07, fine-tuning with LoRA on packed SQuAD-v1.1: TFLOP/s/GPU
# over tokens/s/GPU.
@pytest.mark.parametrize(
    "model, tflops, tokens",
    [("llama2-7b", 673, 25_206), ("llama2-13b", 707, 13_653), ("llama2-70b", 681, 2_470)],
)
def test_model_flops_are_those_that_nemo_counts(model: str, tflops: float, tokens: float) -> None:
    one = question(model, lora=Lora(rank=32, targets=("qkv",)), packing=True, mean_length=200)
    assert model_flops(one, full_attention=False) / one.tokens == pytest.approx(
        tflops * 1e12 / tokens, rel=0.015
    )


def test_frozen_parts_by_hand() -> None:
    """Llama-3-8B's layer: attention 41,943,040, MLP 176,160,768, norms 8,192; a rank of tp 2 holds
    half, norms whole.
    """
    one, of = question("llama3-8b", frozen=("attention", "norms")), Layout(tp=2)
    assert frozen_params(one, of, Layers((4,))) == (4 * (20_971_520 + 8_192), 0.0)
    assert trained_layers(one, of, Layers((4,))) == (4 * 88_080_384, 0.0)
    assert trained_total(one) == 8_030_261_248 - 32 * (41_943_040 + 8_192)


def test_frozen_linears_keep_no_inputs() -> None:
    """T tokens of Llama-3-8B without LoRA on the MLP: its input 2 T h and the activated 2 T f are
    gone, queries' input and outputs stay.
    """
    of, count = Layout(), 4096
    whole, alone = question("llama3-8b"), question("llama3-8b", lora=Lora(rank=8, targets=("qkv",)))
    more = kept(whole, of).layer_bytes - kept(alone, of).layer_bytes
    assert more == count * (2 * 4096 + 2 * 14_336) - count * 8 * 2  # the adapter's own middle, T r


def test_adapters_under_sp_keep_gathered_inputs() -> None:
    """Megatron-Bridge's notes on memory, Qwen3-8B, tp 2, 8,192 tokens, 36 layers: gathering again
    saves 47.545 - 42.814 GB.
    """
    one = question("qwen3-8b", seq_length=8192, lora=Lora(rank=32))
    software = one.software.model_copy(update={"framework": "torch"})  # adapters are not split
    other = one.model_copy(update={"software": software})
    on, off = (kept(each, Layout(tp=2, sp=1)).layer_bytes for each in (one, other))
    assert 36 * (on - off) == pytest.approx((47.545 - 42.814) * 1e9, rel=0.03)


def test_data_parallel_ranks_sum_adapters_alone() -> None:
    """Gradients of 207M adapters in place of 70.6G weights: the reduction all but vanishes, the
    update too.
    """
    of = Layout(tp=8, pp=1, dp=8, m=4, sp=1)
    whole, few = (
        estimate(question(gpus=64, **more), of, exact=True).time
        for more in ({}, {"lora": Lora(rank=16)})
    )
    assert few.optimizer_s < whole.optimizer_s / 100
    assert few.dp_comm_s < whole.dp_comm_s / 20


def test_full_training_does_not_fit_where_adapters_do() -> None:
    rows = Layout(
        tp=np.array([8, 8]),
        dp=np.array([1, 1]),
        m=np.array([32, 32]),
        sp=np.array([1, 1]),
        recompute=np.array([2, 2]),
    )
    whole, few = (estimate(question(**more), rows) for more in ({}, {"lora": Lora(rank=16)}))
    assert not whole.fits.any() and few.fits.all()
    assert float(few.memory.weights_bytes[0]) == pytest.approx(16.5 * GIB, rel=0.01)


def test_four_bits_by_hand() -> None:
    """QLoRA of Llama-2-7B: 0.516 bytes of 6,476,005,376 weights of linears, 2 of tables and norms
    (262,410,240), adapters 2 + 2 + 12.
    """
    one = question(
        "llama2-7b",
        stack="deepspeed",
        framework="deepspeed",
        lora=Lora(rank=64, targets=ALL, base="nf4"),
    )
    said = estimate(one, documents.layout(one, sp=0, zero=2), exact=True).memory
    adapters = 32 * 64 * (4 * 8_192 + 3 * (4_096 + 11_008))
    whole = 2 * (2 * 32_000 * 4_096 + 65 * 4_096 + adapters)
    assert said.weights_bytes == pytest.approx((0.5 + 0.127 / 8) * 6_476_005_376 + whole, rel=1e-6)
    assert said.optimizer_bytes == pytest.approx(12 * adapters / 8, rel=1e-9)


def test_four_bits_are_opened_each_way() -> None:
    """The weights of a layer of Llama-2-7B, 202,375,168, read in 4 bits and written in 16, forward
    and backward.
    """
    found = [
        layer_time(question("llama2-7b", lora=Lora(rank=8, base=base)), Layout())
        for base in ("16bit", "nf4")
    ]  # type: ignore[arg-type]
    profile = question().hardware
    moved = (0.5 + 0.127 / 8 + 2) * 202_375_168
    rate = profile.gpu.hbm_bytes_per_s * profile.kernels.memory_efficiency_share
    assert found[1].adapter_forward_s - found[0].adapter_forward_s == pytest.approx(moved / rate)
    assert found[1].adapter_backward_s - found[0].adapter_backward_s == pytest.approx(moved / rate)
