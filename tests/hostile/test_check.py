"""Whatever a file states, the answer is an answer or one message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.advice.check import changes_to_fit, check_reading
from planner.errors import InputError
from planner.intake.reading import Reading, Value
from planner.report.json.check import document
from planner.report.text.check import text
from tests.advice.by_hand import GPT, LLAMA_70B, deepspeed, megatron
from tests.examples import examples

pytestmark = pytest.mark.slow


DEGREES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "num_layers",
    "num_experts",
    "seq_length",
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "recompute_num_layers",
    "num_query_groups",
    "decoder_last_pipeline_num_layers",
    "microbatch_group_size_per_virtual_pipeline_stage",
    "kv_channels",
    "vocab_size",
)
WORDS = (
    "recompute_granularity",
    "recompute_modules",
    "pipeline_model_parallel_layout",
    "cp_comm_type",
    "moe_layer_freq",
    "fp8_format",
    "fp8_recipe",
    "attention_backend",
    "data_parallel_sharding_strategy",
    "optimizer",
    "position_embedding_type",
    "hf.lora_rank",
    "hf.lora_target",
    "hf.finetuning_type",
    "launch.gpus",
    "launch.nodes",
    "launch.hardware",
    "model",
    "hf_config",
)
SWITCHES = (
    "bf16",
    "fp16",
    "sequence_parallel",
    "use_distributed_optimizer",
    "use_megatron_fsdp",
    "use_torch_fsdp2",
    "swiglu",
    "overlap_param_gather",
    "tp_comm_overlap",
    "optimizer_cpu_offload",
    "use_precision_aware_optimizer",
    "untie_embeddings",
)
ANY: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 70),
    st.sampled_from(
        [0, 1, 2, 3, 4, 8, 12, 16, 128, 10**6, 2**27, 10**30, float("nan"), float("inf"), 1e9]
    ),
    st.none(),
    st.booleans(),
    st.sampled_from(
        [
            "",
            "auto",
            "full",
            "selective",
            "a2a",
            "lora",
            "all",
            "Et|tL",
            "([0]*3+[1]*58)",
            "h100",
            "$X",
            "x" * 300,
        ]
    ),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["hidden_size", "model_type"]), st.integers(0, 9), max_size=2),
)
STAGES: st.SearchStrategy[Any] = st.one_of(st.integers(-1, 4), ANY)


def answered(reading: Reading) -> None:
    try:
        answer = check_reading(reading, "h100-sxm")
        json.dumps(document(answer), allow_nan=False)
        text(answer)
        changes_to_fit(answer)
    except InputError as fault:
        assert str(fault)


@given(
    st.sampled_from([GPT, LLAMA_70B]),
    st.dictionaries(
        st.sampled_from(DEGREES), st.one_of(st.sampled_from([1, 2, 3, 4, 8, 16]), ANY), max_size=5
    ),
    st.dictionaries(st.sampled_from(WORDS), ANY, max_size=2),
    st.dictionaries(st.sampled_from(SWITCHES), st.just(True), max_size=4),
)
@examples(20)
def test_megatron(
    model: str, degrees: dict[str, Any], words: dict[str, Any], switches: dict[str, Any]
) -> None:
    base = megatron(model + "--micro-batch-size 1", 8)
    stated = {
        name: Value(value, "flag") for name, value in {**degrees, **words, **switches}.items()
    }
    answered(Reading(base.file, base.kind, base.framework, None, {**base.values, **stated}))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "train_batch_size",
                "train_micro_batch_size_per_gpu",
                "gradient_accumulation_steps",
                "sequence_parallel_size",
            ]
        ),
        st.one_of(st.sampled_from([1, 2, 8, 64]), ANY),
        max_size=4,
    ),
    STAGES,
    st.dictionaries(
        st.sampled_from(["offload_param", "offload_optimizer", "zero_hpz_partition_size"]),
        ANY,
        max_size=2,
    ),
    st.sampled_from(["deepspeed", "huggingface", "megatron-deepspeed", "neox"]),
)
@examples(12)
def test_deepspeed(batch: dict[str, Any], stage: Any, more: dict[str, Any], kind: str) -> None:
    offload = {
        name: {"device": "cpu", "ratio": value} if name.startswith("offload") else value
        for name, value in more.items()
    }
    answered(
        deepspeed(
            {**batch, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage, **offload}},
            kind,
            model="llama3-8b",
        )
    )
