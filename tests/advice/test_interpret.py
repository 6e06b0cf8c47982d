"""What files mean: sizes by hand arithmetic from published configurations and from Megatron's own
defaults.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.cost.params.layer import total_params
from planner.errors import InputError
from planner.estimate import estimate
from planner.intake.reading import Reading
from planner.interpret.interpret import interpret
from planner.layout import Layout
from planner.specs import library
from planner.specs.routing import LOADS, kept_share
from tests.advice.by_hand import GPT, LLAMA_70B, deepspeed, megatron

GIB = 2**30


def states_gib(flags: str, gpus: int, cluster: str = "a100-80g-sxm") -> float:
    launch = interpret(megatron(flags, gpus), cluster)
    memory = estimate(launch.recipe, launch.layout, exact=True).memory
    return float(memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes) / GIB


def test_llama_from_arguments_is_llama() -> None:
    launch = interpret(
        megatron(LLAMA_70B + "--bf16 --micro-batch-size 1 --global-batch-size 8"), "h100-sxm"
    )
    assert (
        total_params(launch.recipe.model) == 70_553_706_496
    )  # Hugging Face's count of meta-llama/Meta-Llama-3-70B
    assert (
        launch.recipe.model.num_kv_heads,
        launch.recipe.model.position,
        launch.recipe.model.norm,
    ) == (
        8,
        "rope",
        "rmsnorm",
    )


@pytest.mark.parametrize(
    ("flags", "ffn"),
    [("", 16384), ("--swiglu ", 10880), ("--swiglu --ffn-hidden-size 11008 ", 11008)],
)
def test_width_of_the_mlp_by_default(flags: str, ffn: int) -> None:
    """4 h; with swiglu int(4 h 2/3 / 64) 64."""
    assert (
        interpret(megatron(GPT + flags + "--micro-batch-size 1"), "h100-sxm").recipe.model.ffn_size
        == ffn
    )


@pytest.mark.parametrize(
    ("flags", "gpus", "bytes_each"),
    [
        ("--bf16 --use-distributed-optimizer", 8, 6 + 12 / 8),
        ("--bf16", 8, 18.0),
        ("--fp16", 1, 20.0),
        ("--fp16 --use-distributed-optimizer", 8, 4 + 16 / 8),
        ("", 1, 16.0),
        ("--bf16 --use-distributed-optimizer --grad-reduce-in-bf16", 8, 4 + 12 / 8),
    ],
)
def test_states_are_as_megatron_documents_them(flags: str, gpus: int, bytes_each: float) -> None:
    """Bytes a parameter of Megatron's table (docs of the distributed optimizer): fp16 20 or 4 +
    16/d, bf16 18 or 6 + 12/d, fp32 16.
    """
    launch = interpret(megatron(GPT + flags + " --micro-batch-size 1", gpus), "a100-80g-sxm")
    expected = bytes_each * total_params(launch.recipe.model) / GIB
    assert states_gib(GPT + flags + " --micro-batch-size 1", gpus) == pytest.approx(
        expected, rel=1e-3
    )


def layout(flags: str, gpus: int) -> Layout:
    return interpret(megatron(GPT + "--bf16 " + flags, gpus), "h100-sxm").layout


def test_layout_of_degrees_batch_and_virtual_stages() -> None:
    found = layout(
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4"
        " --num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 2 --global-batch-size 64"
        " --sequence-parallel",
        16,
    )
    assert (found.tp, found.pp, found.dp, found.v, found.m, found.sp) == (
        2,
        4,
        2,
        4,
        16,
        1,
    )  # v = 32 layers / 4 / 2


def test_batch_without_a_flag_is_one_micro_batch() -> None:
    assert layout("--micro-batch-size 2", 8).m == 1


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("--recompute-activations", 1),
        ("--checkpoint-activations", 2),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", 2),
    ],
)
def test_recomputation_of_all_times(flags: str, kind: int) -> None:
    assert layout(f"--micro-batch-size 1 {flags}", 8).recompute == kind


def test_flash_attention_needs_sixteen_bits_and_a_gpu_of_2020() -> None:
    words = GPT + "--use-flash-attn --micro-batch-size 1"
    assert interpret(megatron(words), "a100-80g-sxm").recipe.attention == "unfused"
    assert interpret(megatron(words + " --fp16"), "v100-32g-sxm2").recipe.attention == "unfused"
    assert interpret(megatron(words + " --fp16"), "a100-80g-sxm").recipe.attention == "flash"


def test_deepspeed_batch_follows_from_two_of_three() -> None:
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 3},
    }
    launch = interpret(deepspeed(config), "a100-80g-sxm", 8, "llama2-7b")
    assert (launch.layout.m, launch.layout.dp, launch.layout.zero) == (8, 8, 3)


def test_gpus_are_told_by_the_batch_and_asked_for() -> None:
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
    }
    launch = interpret(deepspeed(config))
    assert launch.recipe.gpus == 8
    assert not launch.counted and launch.unresolved[0].name == "gpus"


@pytest.mark.parametrize(
    ("degree", "layout"),
    [
        ({"sequence_parallel_size": 2}, (1, 1, 8, 2)),
        ({"tensor_parallel": {"autotp_size": 4}}, (4, 1, 8, 1)),
        ({"pipeline": {"stages": 2}}, (1, 2, 8, 1)),
    ],
)
def test_gpus_of_a_deepspeed_batch_are_its_data_parallel_ranks_times_the_degrees(
    degree: dict[str, Any], layout: tuple[int, ...]
) -> None:
    """512 sequences of 64 micro-batches of 1 are 8 data-parallel ranks."""
    config = {
        "train_batch_size": 512,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 64,
    }
    launch = interpret(deepspeed({**config, **degree}))
    stated = launch.layout
    assert (stated.tp, stated.pp, stated.dp, stated.cp) == layout
    assert launch.recipe.gpus == math.prod(layout)


def test_what_is_not_stated_is_a_default_with_its_version() -> None:
    launch = interpret(megatron(GPT + "--micro-batch-size 1"))
    assert launch.values["context_parallel_size"].origin == "default"
    assert launch.values["context_parallel_size"].where == "Megatron 0.19"
    assert launch.values["micro_batch_size"].origin == "flag"
    assert {one.name for one in launch.unresolved} == {"cluster"}


def test_options_restate_arguments_and_the_cluster() -> None:
    sets = {"seq_length": "2048", "framework_version": "0.15", "gpu.usable_gib": "70"}
    launch = interpret(megatron(GPT + "--micro-batch-size 1"), "h100-sxm", sets=sets)
    assert (
        launch.recipe.seq_length,
        launch.recipe.framework_version,
        launch.recipe.hardware.gpu.usable_gib,
    ) == (
        2048,
        "0.15",
        70,
    )
    assert launch.values["seq_length"].origin == "option"


def test_adapters_freeze_the_rest() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
    }
    whole = interpret(deepspeed(config, "huggingface"), "a100-80g-sxm", 8, "llama2-7b")
    lora = interpret(
        deepspeed(config, "huggingface", hf__finetuning_type="lora", hf__lora_rank=16),
        "a100-80g-sxm",
        8,
        "llama2-7b",
    )
    assert lora.recipe.lora is not None and lora.recipe.lora.rank == 16
    optimizer = [
        float(estimate(launch.recipe, launch.layout).memory.optimizer_bytes)
        for launch in (whole, lora)
    ]
    assert optimizer[1] < optimizer[0] / 50


def test_a_model_nobody_knows_is_open_but_a_wrong_option_is_refused() -> None:
    launch = interpret(deepspeed({"train_batch_size": 8}, model="my-own-net"), gpus=8)
    assert not launch.sized and "model" in {one.name for one in launch.unresolved}
    with pytest.raises(InputError, match="model must be a known name"):
        interpret(deepspeed({"train_batch_size": 8}), model="my-own-net")


def test_a_value_that_is_no_number_is_one_message() -> None:
    with pytest.raises(InputError, match="micro_batch_size must be a whole number"):
        interpret(megatron(GPT + "--micro-batch-size many"))


def test_expandable_segments_shrink_fragmentation() -> None:
    """Of 5% of what is allocated 2% are left, as in NeMo's stack, whose runs have them."""
    flags = GPT + "--bf16 --micro-batch-size 1 --global-batch-size 64"
    plain = interpret(megatron(flags), "h100-sxm").recipe.software
    more = interpret(
        megatron(flags, env__PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "h100-sxm"
    ).recipe.software
    off = interpret(
        megatron(flags, env__PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"), "h100-sxm"
    ).recipe.software
    assert (
        more.allocator.reserved_share
        == pytest.approx(library.stack("nemo-2025").allocator.reserved_share)
        and off == plain
    )


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25, 4.0])
def test_capacity_keeps_what_sampled_loads_would(factor: float) -> None:
    """A million experts whose loads are drawn, each cut at the capacity."""
    loads = np.random.default_rng(1).lognormal(-(LOADS**2) / 2, LOADS, 1_000_000)
    assert kept_share(factor) == pytest.approx(np.minimum(loads, factor).mean(), abs=2e-3)


def test_the_busiest_rank_of_unbalanced_experts_has_what_published_runs_are_given() -> None:
    """The spread of loads is that at which the busiest of 8 ranks of 16 experts has 1.3 times the
    mean.
    """
    loads = np.random.default_rng(2).lognormal(-(LOADS**2) / 2, LOADS, (20_000, 8, 16))
    assert loads.mean(axis=2).max(axis=1).mean() == pytest.approx(1.3, abs=0.01)


def test_capacity_changes_what_experts_compute() -> None:
    moe = (
        GPT
        + "--bf16 --micro-batch-size 1 --global-batch-size 64 --num-experts 8 --moe-router-topk 2"
        " --moe-expert-capacity-factor 1 "
    )
    assert interpret(megatron(moe)).recipe.software.experts.load == pytest.approx(kept_share(1.0))
    padded = interpret(megatron(moe + "--moe-pad-expert-input-to-capacity")).recipe.software
    assert padded.experts.load == 1.0


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (
            megatron(GPT.replace("--num-layers 32", "--num-layers -32")),
            "num_layers must be at least 1, but got -32",
        ),
        (megatron(GPT + "--micro-batch-size 0"), "micro_batch_size must be at least 1, but got 0"),
        (
            deepspeed({"train_batch_size": -8}),
            "deepspeed.train_batch_size must be at least 1, but got -8",
        ),
        (
            deepspeed({"train_batch_size": 8, "zero_optimization": {"stage": -1}}),
            "stage must be at least 0, but got -1",
        ),
    ],
)
def test_counts_below_the_least(reading: Reading, says: str) -> None:
    with pytest.raises(InputError, match=says):
        interpret(reading, "h100-sxm")


def test_a_guessed_gpu_count_holds_the_experts() -> None:
    """tp 2 x pp 4 are 8 GPUs, but etp 1 x ep 8 x pp 4 are 32: the fewest that both divide."""
    flags = (
        GPT
        + "--bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-experts 8"
        " --expert-model-parallel-size 8 --expert-tensor-parallel-size 1"
    )
    reading = megatron(flags)
    values = {name: one for name, one in reading.values.items() if name != "launch.gpus"}
    launch = interpret(replace(reading, values=values), "h100-sxm")
    assert launch.recipe.gpus == 32 and not launch.counted
