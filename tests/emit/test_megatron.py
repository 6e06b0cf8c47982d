"""Flags of a layout, value by value; what Megatron-LM cannot express is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from planner.emit import environment, megatron
from planner.errors import InputError
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, Layout, module_mask
from planner.specs import library
from planner.specs.recipe import Recipe
from tests import documents

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]


def written(question: Recipe, one: Layout) -> dict[str, list[str]]:
    """Flags by name; each is written once."""
    flags = megatron.flags(question, one)
    assert len({flag[0] for flag in flags}) == len(flags)
    return {flag[0]: list(flag[1:]) for flag in flags}


def of(
    model: str = "llama3-70b", changes: dict[str, Any] | None = None, **knobs: Any
) -> dict[str, list[str]]:
    question = documents.recipe(model, **(changes or {}))
    return written(question, documents.layout(question, **knobs))


def test_llama_as_its_config_json_says() -> None:
    """Values of meta-llama/Llama-3.1-70B's config.json; 129,024 is 128,256 rounded up to 128 *
    8.
    """
    flags = of(tp=8, pp=4)
    expected = {
        "--num-layers": ["80"],
        "--hidden-size": ["8192"],
        "--ffn-hidden-size": ["28672"],
        "--num-attention-heads": ["64"],
        "--num-query-groups": ["8"],
        "--group-query-attention": [],
        "--kv-channels": ["128"],
        "--swiglu": [],
        "--normalization": ["RMSNorm"],
        "--rotary-base": ["500000"],
        "--position-embedding-type": ["rope"],
        "--untie-embeddings-and-output-weights": [],
        "--disable-bias-linear": [],
        "--padded-vocab-size": ["129024"],
        "--seq-length": ["8192"],
        "--bf16": [],
        "--tensor-model-parallel-size": ["8"],
        "--pipeline-model-parallel-size": ["4"],
        "--sequence-parallel": [],
        "--use-distributed-optimizer": [],
        "--micro-batch-size": ["1"],
        "--global-batch-size": ["512"],
        "--attention-backend": ["flash"],
        "--overlap-grad-reduce": [],
        "--overlap-param-gather": [],
        "--vocab-size": ["128256"],
        "--attention-dropout": ["0.0"],
    }
    assert {name: flags.get(name) for name in expected} == expected
    assert not {
        "--add-qkv-bias",
        "--qk-layernorm",
        "--num-virtual-stages-per-pipeline-rank",
        "--recompute-granularity",
    } & set(flags)


def test_gpt_has_biases_learned_positions_and_tied_tables() -> None:
    flags = of(
        "gpt3-175b",
        {"seq_length": 2048, "stack": "megatron-2022", "attention": "unfused"},
        tp=8,
        pp=4,
        zero=0,
    )
    assert flags["--position-embedding-type"] == ["learned_absolute"]
    assert flags["--max-position-embeddings"] == ["2048"]
    assert flags["--normalization"] == ["LayerNorm"]
    assert flags["--hidden-dropout"] == ["0.1"]
    assert flags["--attention-backend"] == ["unfused"]
    absent = {
        "--swiglu",
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        "--group-query-attention",
        "--rotary-base",
        "--use-distributed-optimizer",
        "--overlap-param-gather",
    }
    assert not absent & set(flags)


def test_qwen_particulars() -> None:
    assert "--qk-layernorm" in of("qwen3-32b", tp=8)
    assert "--add-qkv-bias" in of("qwen2.5-32b", tp=8)
    tied = of("qwen3-0.6b", tp=1)
    assert "--untie-embeddings-and-output-weights" not in tied
    assert tied["--kv-channels"] == ["128"]  # 16 heads of 128 over a hidden size of 1,024


@pytest.mark.parametrize(
    "version, vocab",
    [
        ("0.14", "128255"),
        ("0.17", "128255"),
        ("0.18", "128256"),
        ("0.19", "128256"),
        ("main", "128256"),
    ],
)
def test_null_tokenizer_counts_one_more_until_0_18(version: str, vocab: str) -> None:
    assert of(changes={"framework_version": version}, tp=8)["--vocab-size"] == [vocab]


@pytest.mark.parametrize(
    "knobs, expected",
    [
        (
            {"pp": 4, "v": 5, "group": 8},
            {
                "--num-virtual-stages-per-pipeline-rank": ["5"],
                "--microbatch-group-size-per-virtual-pipeline-stage": ["8"],
            },
        ),
        (
            {"pp": 4, "first_layers": 19, "last_layers": 19},
            {
                "--decoder-first-pipeline-num-layers": ["19"],
                "--decoder-last-pipeline-num-layers": ["19"],
            },
        ),
        (
            {"pp": 4, "account_for_embedding": 1, "account_for_loss": 1},
            {
                "--account-for-embedding-in-pipeline-split": [],
                "--account-for-loss-in-pipeline-split": [],
            },
        ),
        (
            {"cp": 2},
            {
                "--context-parallel-size": ["2"],
                "--cp-comm-type": ["p2p"],
                "--hierarchical-context-parallel-sizes": None,
            },
        ),
        (
            {"cp": 2, "cp_a2a": 2},
            {"--cp-comm-type": ["a2a"], "--hierarchical-context-parallel-sizes": None},
        ),
        (
            {"cp": 4, "cp_a2a": 2},
            {"--cp-comm-type": ["a2a+p2p"], "--hierarchical-context-parallel-sizes": ["2", "2"]},
        ),
        (
            {"offload": OFFLOAD_CODE["optimizer-cpu"]},
            {
                "--optimizer-cpu-offload": [],
                "--use-precision-aware-optimizer": [],
                "--exp-avg-dtype": None,
            },
        ),
        (
            {"recompute": FULL},
            {
                "--recompute-granularity": ["full"],
                "--recompute-method": ["uniform"],
                "--recompute-num-layers": ["1"],
            },
        ),
        (
            {"recompute": FULL, "recompute_layers": 7},
            {"--recompute-method": ["block"], "--recompute-num-layers": ["7"]},
        ),
        (
            {"recompute": SELECTIVE},
            {"--recompute-granularity": ["selective"], "--recompute-modules": ["core_attn"]},
        ),
        (
            {"recompute": SELECTIVE, "recompute_modules": module_mask(["layernorm", "mlp"])},
            {"--recompute-modules": ["layernorm", "mlp"]},
        ),
        (
            {"zero": 2},
            {
                "--use-megatron-fsdp": [],
                "--data-parallel-sharding-strategy": ["optim_grads"],
                "--ckpt-format": ["fsdp_dtensor"],
            },
        ),
        ({"zero": 3}, {"--data-parallel-sharding-strategy": ["optim_grads_params"]}),
    ],
)
def test_knobs(knobs: dict[str, Any], expected: dict[str, list[str]]) -> None:
    flags = of(tp=2, **knobs)
    assert {name: flags.get(name) for name in expected} == expected


def test_stage_layout_says_the_virtual_stages_too() -> None:
    flags = of(tp=2, pp=4, v=2, stage_layout="Et*9|(t*10|)*6t*11L")
    assert flags["--pipeline-model-parallel-layout"] == ["Et*9|(t*10|)*6t*11L"]
    assert "--num-virtual-stages-per-pipeline-rank" not in flags


@pytest.mark.parametrize(
    "precision, expected",
    [
        ("fp32", {}),
        ("fp16", {"--fp16": [], "--accumulate-allreduce-grads-in-fp32": []}),
        ("fp8-delayed", {"--bf16": [], "--fp8-format": ["hybrid"], "--fp8-recipe": ["delayed"]}),
        ("fp8-blockwise", {"--fp8-recipe": ["blockwise"]}),
        ("mxfp8", {"--fp8-format": ["e4m3"], "--fp8-recipe": ["mxfp8"]}),
        ("nvfp4", {"--bf16": [], "--fp4-format": ["e2m1"], "--fp4-recipe": ["nvfp4"]}),
    ],
)
def test_precision(precision: str, expected: dict[str, list[str]]) -> None:
    flags = of(changes={"precision": precision}, tp=8)
    assert {name: flags.get(name) for name in expected} == expected
    assert ("--bf16" in flags) == (precision not in ("fp16", "fp32"))


@pytest.mark.parametrize(
    "changes", [{"precision": "fp32"}, {"hardware": "v100-32g-sxm2", "precision": "fp16"}]
)
def test_flash_attention_is_left_open_where_it_cannot_run(changes: dict[str, Any]) -> None:
    """Transformer Engine turns FlashAttention off for 32 bits and before compute capability 8.0."""
    assert of(changes=changes, tp=8)["--attention-backend"] == ["auto"]


def test_sequence_parallelism_needs_a_split() -> None:
    assert "--sequence-parallel" not in of(tp=1, sp=1)


@pytest.mark.parametrize(
    "model, feature", [("mpt-7b", "alibi positions"), ("mpt-7b", "a LayerNorm without bias")]
)
def test_what_megatron_cannot_express_is_named(model: str, feature: str) -> None:
    with pytest.raises(InputError, match=feature):
        of(model, {"seq_length": 2048}, tp=1)


@pytest.mark.parametrize(
    "change, feature",
    [
        ({"activation": "gelu"}, "a gated MLP with gelu"),
        ({"gated_mlp": False}, "an ungated MLP with silu"),
        ({"mlp_bias": True}, "biases on attention none and MLP True"),
        ({"frameworks": ("deepspeed",)}, "for deepspeed alone"),
    ],
)
def test_combinations_without_a_flag_are_named(change: dict[str, Any], feature: str) -> None:
    model = library.model("llama3-8b").model_copy(update=change)
    question = documents.recipe(model)
    with pytest.raises(InputError, match=feature):
        megatron.flags(question, documents.layout(question))


def test_rowwise_fp8_is_refused() -> None:
    with pytest.raises(InputError, match="tensorwise"):
        of(changes={"precision": "fp8-rowwise"}, tp=8)


@pytest.mark.parametrize(
    "cluster, knobs, expected",
    [
        ("h100-sxm", {"tp": 8}, "1"),
        ("h100-sxm", {"cp": 2}, "1"),
        ("h100-sxm", {"pp": 4}, None),
        ("b200-sxm", {"tp": 8}, None),
        ("h100-sxm", {"tp": 8, "zero": 3}, "8"),
        ("b200-sxm", {"zero": 2}, "8"),
    ],
)
def test_launch_order_needs_one_connection(
    cluster: str, knobs: dict[str, Any], expected: str | None
) -> None:
    """Megatron asserts 1 for tp or cp before Blackwell, and not 1 under its FSDP."""
    question = documents.recipe(hardware=cluster)
    env = dict(environment.megatron(question, documents.layout(question, **knobs)))
    assert env.get("CUDA_DEVICE_MAX_CONNECTIONS") == expected


@pytest.mark.parametrize("kernel", ["flash", "fused", "unfused"])
def test_attention_kernel_is_transformer_engines_backend_of_that_name(kernel: str) -> None:
    assert of(changes={"attention": kernel}, tp=8)["--attention-backend"] == [kernel]


def test_deepseek_v3_as_its_config_json_says() -> None:
    """Values of deepseek-ai/DeepSeek-V3's config.json; expert tensor parallelism is written, as its
    default is tp.
    """
    flags = of("deepseek-v3", {"gpus": 256}, tp=2, pp=4, ep=32, first_layers=16, last_layers=13)
    expected = {
        "--multi-latent-attention": [],
        "--q-lora-rank": ["1536"],
        "--kv-lora-rank": ["512"],
        "--qk-head-dim": ["128"],
        "--qk-pos-emb-head-dim": ["64"],
        "--v-head-dim": ["128"],
        "--qk-layernorm": [],
        "--num-experts": ["256"],
        "--moe-ffn-hidden-size": ["2048"],
        "--moe-shared-expert-intermediate-size": ["2048"],
        "--moe-router-topk": ["8"],
        "--moe-layer-freq": ["([0]*3+[1]*58)"],
        "--moe-router-score-function": ["sigmoid"],
        "--moe-router-enable-expert-bias": [],
        "--moe-router-num-groups": ["8"],
        "--moe-router-group-topk": ["4"],
        "--moe-router-topk-scaling-factor": ["2.5"],
        "--expert-model-parallel-size": ["32"],
        "--expert-tensor-parallel-size": ["1"],
        "--mtp-num-layers": ["1"],
        "--moe-grouped-gemm": [],
        "--moe-token-dispatcher-type": ["alltoall"],
        "--ffn-hidden-size": ["18432"],
        "--disable-bias-linear": [],
    }
    assert {name: flags.get(name) for name in expected} == expected
    assert not {
        "--group-query-attention",
        "--num-query-groups",
        "--moe-router-pre-softmax",
        "--moe-shared-expert-gate",
    } & set(flags)


def test_gpt_oss_has_biases_sinks_and_windows() -> None:
    """Values of openai/gpt-oss-20b's config.json; 128 tokens are the token itself and 127 before
    it.
    """
    flags = of("gpt-oss-20b", tp=2, ep=8)
    expected = {
        "--softmax-type": ["learnable"],
        "--window-size": ["127,0"],
        "--window-attn-skip-freq": ["2"],
        "--quick-geglu": [],
        "--glu-linear-offset": ["1.0"],
        "--num-query-groups": ["8"],
        "--kv-channels": ["64"],
        "--moe-router-topk": ["4"],
    }
    assert {name: flags.get(name) for name in expected} == expected
    assert not {"--disable-bias-linear", "--moe-layer-freq", "--mtp-num-layers", "--swiglu"} & set(
        flags
    )


@pytest.mark.parametrize(
    "model, flag, value",
    [
        ("qwen2-57b-a14b", "--moe-shared-expert-gate", []),
        ("qwen2-57b-a14b", "--moe-router-pre-softmax", []),
        ("qwen3-30b-a3b", "--qk-layernorm", []),
        ("glm4.5-355b-a32b", "--rotary-percent", ["0.5"]),
        ("nemotron4-15b", "--rotary-percent", ["0.5"]),
        ("phi3-mini-3.8b", "--window-size", ["2046,0"]),
    ],
)
def test_particulars(model: str, flag: str, value: list[str]) -> None:
    assert of(model, {"seq_length": 4096}, tp=1)[flag] == value


def test_every_other_layer_with_experts_is_written_as_a_list() -> None:
    """Megatron's own pattern of layers, from 0: llama4-maverick's layers 1, 3, 5, ... have
    experts.
    """
    model = library.model("llama4-maverick").model_copy(
        update={"window": None, "num_layers": 6, "frameworks": ("megatron",)}
    )
    assert of(model, tp=1)["--moe-layer-freq"] == ["([0,1,0,1,0,1])"]  # type: ignore[arg-type]


def test_old_gpus_have_no_grouped_gemm() -> None:
    assert "--moe-grouped-gemm" not in of(
        "mixtral-8x7b",
        {"hardware": "v100-32g-sxm2", "precision": "fp16", "attention": "fused"},
        tp=1,
    )


@pytest.mark.parametrize(
    "model, feature",
    [
        ("bloom-176b", "a norm on the embedding"),
        ("falcon-40b", "attention and MLP in parallel"),
        ("opt-13b", "an ungated MLP with relu"),
        ("gemma3-12b", "4 norms a layer, before and after attention and MLP"),
        ("minimax-m2", "a query and key norm of kind full_width"),
        ("llama4-scout", "attention in chunks"),
        ("arctic-480b", "a dense MLP beside the experts"),
        ("ernie4.5-21b-a3b", "a correction bias on softmax scores"),
        ("granite3.0-8b", "is for deepspeed, torch alone"),
    ],
)
def test_what_megatron_has_no_flag_for_is_named(model: str, feature: str) -> None:
    with pytest.raises(InputError, match=re.escape(feature)):
        of(model, {"seq_length": 2048}, tp=1)
