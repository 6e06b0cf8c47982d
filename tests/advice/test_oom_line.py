"""Sizes that published out-of-memory messages named, and the tensors that their threads found."""

from __future__ import annotations

from typing import Any

import pytest

from planner.advice.check import check_reading
from planner.errors import InputError
from planner.intake.reading import Reading
from tests.advice.by_hand import LLAMA_70B, deepspeed, megatron

GPT2 = (
    "--num-layers 36 --hidden-size 1280 --num-attention-heads 20 --seq-length 1024"
    " --max-position-embeddings 1024 --micro-batch-size 4 --fp16 --swiglu --vocab-size 50257"
)
ZERO3 = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3},
    "fp16": {"enabled": True},
}
QWEN = {
    "model_type": "qwen2",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "intermediate_size": 24576,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


def first(reading: Reading, text: str, gpus: int, model: str | None = None) -> dict[str, Any]:
    answer = check_reading(reading, "a100-80g-sxm", gpus, model, {}, text)
    assert answer.oom is not None
    return dict(answer.oom["matches"][0])


def test_logits_of_megatron_525() -> None:
    """1024 * 4 * 50304 * 4 bytes."""
    found = first(
        megatron(GPT2, 1),
        "CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 31.74 GiB total capacity)",
        1,
    )
    assert found["tensor"] == "fp32 logits" and found["exact"]
    assert found["bytes"] == 1024 * 4 * 50304 * 4
    assert "50304" in found["arithmetic"] and "786.00 MiB" in found["arithmetic"]


def test_shard_of_llamafactory_2959() -> None:
    """4 bytes of 72.29e9 parameters over 16 GPUs."""
    found = first(
        deepspeed(ZERO3, "huggingface", hf_config=QWEN, hf__cutoff_len=1024),
        "Tried to allocate 16.83 GiB",
        16,
    )
    assert found["tensor"] == "one fp32 flat shard" and found["exact"]
    assert found["bytes"] == pytest.approx(4 * 72.29e9 / 16, rel=1e-3)


def test_experts_of_ms_swift_9403() -> None:
    """227.1e9 parameters of experts over PP 2 * EP 8, 2 bytes each."""
    flags = (
        "--pipeline-model-parallel-size 2 --expert-model-parallel-size 8"
        " --expert-tensor-parallel-size 1 --num-experts 128 --micro-batch-size 1 --seq-length 4096"
        " --bf16"
    )
    found = first(megatron(flags, 16), "26.44 GiB", 16, "qwen3-235b-a22b")
    assert found["tensor"] == "all local expert weights, 16-bit" and found["exact"]


def test_matrix_of_colossalai_5068() -> None:
    """28672 x 8192 in bf16, whole although it should have been split."""
    flags = (
        LLAMA_70B + "--tensor-model-parallel-size 8 --bf16 --micro-batch-size 1 --sequence-parallel"
    )
    found = first(megatron(flags, 8), "Tried to allocate 448.00 MiB", 8)
    assert (
        found["tensor"] == "an MLP matrix, 16-bit, unsharded"
        and "28672 x 8192" in found["arithmetic"]
    )


def test_whole_model_of_deepspeed_2899() -> None:
    """29.97e9 parameters in fp16: zero.Init was missing."""
    found = first(
        deepspeed(ZERO3, hf__cutoff_len=2048), "Tried to allocate 55.83 GiB", 8, "opt-30b"
    )
    assert found["tensor"].startswith("the whole model, 16-bit")


def test_a_size_of_nothing_has_no_match() -> None:
    answer = check_reading(
        megatron(GPT2, 1), "v100-32g-sxm2", 1, None, {}, "Tried to allocate 3.17 TiB"
    )
    assert answer.oom is not None and answer.oom["matches"] == []


def test_a_text_that_is_no_message_is_refused() -> None:
    with pytest.raises(InputError, match="--oom must be the message"):
        check_reading(megatron(GPT2, 1), "v100-32g-sxm2", 1, None, {}, "all is well")
