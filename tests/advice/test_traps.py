"""Rules and traps as a table: a command line that is in one, and one that is not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.advice.check import check_file, check_reading
from planner.advice.findings import Checked, Finding
from planner.advice.flag_names import changed
from planner.advice.flag_names import flags as in_flags
from planner.errors import InputError
from planner.intake.reading import Reading
from planner.interpret.interpret import interpret
from tests.advice.by_hand import GPT, LLAMA_70B, deepspeed, megatron

pytestmark = pytest.mark.slow


BATCH = "--micro-batch-size 1 --global-batch-size 64 "
PLAIN = GPT + "--bf16 --use-distributed-optimizer " + BATCH
MOE = (
    PLAIN + "--num-experts 8 --moe-router-topk 2 --disable-bias-linear --moe-token-dispatcher-type"
    " alltoall "
)
SPARSE = (
    "--multi-latent-attention --q-lora-rank 64 --no-rope-fusion"
    " --experimental-attention-variant dsa --dsa-indexer-n-heads 4"
    " --dsa-indexer-head-dim 32 --dsa-indexer-topk 64"
    " --disable-bias-linear --position-embedding-type rope "
)


def found(answer: Checked, rule: str) -> Finding | None:
    return next((one for one in answer.findings if one.rule == rule), None)


MEGATRON = [
    # rule, severity, flags that break it, flag of the way out, flags that keep it
    ("fp32 training", "warning", GPT + BATCH, "--bf16", PLAIN),
    (
        "sequence parallelism ignored",
        "warning",
        PLAIN + "--sequence-parallel",
        "--sequence-parallel",
        PLAIN + "--sequence-parallel --tensor-model-parallel-size 2",
    ),
    (
        "distributed optimizer has no effect",
        "warning",
        PLAIN + "--tensor-model-parallel-size 8",
        "--use-distributed-optimizer",
        PLAIN + "--tensor-model-parallel-size 4",
    ),
    (
        "flash attention needs 16 bits",
        "warning",
        GPT + BATCH + "--use-flash-attn",
        "--bf16",
        PLAIN + "--use-flash-attn",
    ),
    (
        "core_attn recompute useless",
        "warning",
        PLAIN + "--recompute-granularity selective",
        "--recompute-granularity",
        PLAIN + "--recompute-granularity selective --attention-backend unfused",
    ),
    (
        "sparse attention without its kernels",
        "warning",
        PLAIN + SPARSE,
        "--dsa-kernel-backend",
        PLAIN + SPARSE + "--dsa-kernel-backend cudnn",
    ),
    (
        "fewer micro-batches than stages",
        "warning",
        PLAIN + "--pipeline-model-parallel-size 8 --global-batch-size 4",
        "--global-batch-size",
        PLAIN + "--pipeline-model-parallel-size 8",
    ),
    (
        "one micro-batch a step",
        "warning",
        GPT + "--bf16 --micro-batch-size 1",
        "--global-batch-size",
        PLAIN,
    ),
    (
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "warning",
        PLAIN + "--tensor-model-parallel-size 2",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        PLAIN,
    ),
    (
        "grouped-query attention off",
        "warning",
        PLAIN + "--num-query-groups 8",
        "--group-query-attention",
        PLAIN + "--num-query-groups 8 --group-query-attention",
    ),
    (
        "tokens gathered",
        "warning",
        MOE + "--expert-model-parallel-size 2 --moe-token-dispatcher-type allgather",
        "--moe-token-dispatcher-type",
        MOE + "--expert-model-parallel-size 2",
    ),
    (
        "tokens dropped",
        "warning",
        MOE + "--moe-expert-capacity-factor 1",
        "--moe-expert-capacity-factor",
        MOE,
    ),
    (
        "dropout by default",
        "warning",
        PLAIN + "--normalization RMSNorm --attention-dropout 0.0",
        "--hidden-dropout",
        PLAIN + "--normalization RMSNorm --attention-dropout 0.0 --hidden-dropout 0.0",
    ),
    (
        "batch ramp-up ignored",
        "warning",
        PLAIN + "--rampup-batch-size 16 16 1000",
        "--rampup-batch-size",
        PLAIN,
    ),
    ("one 16-bit format", "error", PLAIN + "--fp16", "--fp16", PLAIN),
    (
        "parameters gather after gradients overlap",
        "error",
        PLAIN + "--overlap-param-gather",
        "--overlap-grad-reduce",
        PLAIN + "--overlap-param-gather --overlap-grad-reduce",
    ),
    (
        "full recomputation has a method",
        "error",
        PLAIN + "--recompute-granularity full",
        "--recompute-method",
        PLAIN + "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    (
        "selective recomputation has no method",
        "error",
        PLAIN + "--recompute-activations --recompute-method uniform",
        "--recompute-method",
        PLAIN + "--recompute-activations",
    ),
    (
        "userbuffers need sequence parallelism",
        "error",
        PLAIN + "--tensor-model-parallel-size 2 --tp-comm-overlap",
        "--sequence-parallel",
        PLAIN + "--tensor-model-parallel-size 2 --tp-comm-overlap --sequence-parallel",
    ),
    (
        "expert parallelism needs experts",
        "error",
        PLAIN + "--expert-model-parallel-size 2",
        "--expert-model-parallel-size",
        MOE + "--expert-model-parallel-size 2",
    ),
    (
        "experts split without biases",
        "error",
        MOE.replace("--disable-bias-linear ", "")
        + "--tensor-model-parallel-size 2 --sequence-parallel",
        "--add-bias-linear",
        MOE + "--tensor-model-parallel-size 2 --sequence-parallel",
    ),
    (
        "positions reach the sequence",
        "error",
        PLAIN + "--seq-length 8192",
        "--max-position-embeddings",
        PLAIN + "--seq-length 8192 --max-position-embeddings 8192",
    ),
    (
        "cross entropy is not fused by TE",
        "error",
        PLAIN + "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
        "--cross-entropy-fusion-impl",
        PLAIN + "--cross-entropy-fusion-impl native",
    ),
    (
        "layers split over stages",
        "error",
        PLAIN + "--num-layers 30 --pipeline-model-parallel-size 4",
        "--decoder-last-pipeline-num-layers",
        PLAIN
        + "--num-layers 30 --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 6",
    ),
    (
        "heads split over tp",
        "error",
        PLAIN + "--num-attention-heads 12 --kv-channels 128 --tensor-model-parallel-size 8",
        "--tensor-model-parallel-size",
        PLAIN + "--tensor-model-parallel-size 8",
    ),
    (
        "batch is dp * mbs * m",
        "error",
        PLAIN + "--global-batch-size 60",
        "--global-batch-size",
        PLAIN,
    ),
    (
        "micro-batches interleave",
        "error",
        PLAIN + "--pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 2"
        " --global-batch-size 12",
        "--global-batch-size",
        PLAIN + "--pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 2"
        " --global-batch-size 16",
    ),
    (
        "gpus split over etp * ep * pp",
        "error",
        MOE + "--tensor-model-parallel-size 4 --expert-model-parallel-size 4 --sequence-parallel",
        "--expert-tensor-parallel-size",
        MOE + "--tensor-model-parallel-size 4 --expert-model-parallel-size 4 --sequence-parallel"
        " --expert-tensor-parallel-size 1",
    ),
]


@pytest.mark.parametrize(
    ("rule", "severity", "broken", "flag", "kept"), MEGATRON, ids=[row[0] for row in MEGATRON]
)
def test_megatron(rule: str, severity: str, broken: str, flag: str, kept: str) -> None:
    """Each rule where the flags break it, with its flag among the ways out, and not where they keep
    it.
    """
    answer = check_reading(megatron(broken), "h100-sxm")
    said = found(answer, rule)
    assert said is not None and said.severity == severity
    assert flag in {name for way in said.ways for name in in_flags("megatron", way.values)}
    assert (answer.verdict == "invalid") == any(
        one.severity == "error" and one.rule != "memory fits the GPU" for one in answer.findings
    )
    assert found(check_reading(megatron(kept), "h100-sxm"), rule) is None


ZERO2: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2},
    "fp16": {"enabled": True},
}
NET = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    " --max-position-embeddings 1024"
)


def in_megatron(**more: Any) -> Reading:
    """Megatron-DeepSpeed: flags and a configuration."""
    values = megatron(NET, 4).values | deepspeed(ZERO2).values | deepspeed({}, **more).values
    return Reading("launch.sh", "megatron-deepspeed", "deepspeed", None, values)


def test_zero_2_in_a_pipeline_module_of_one_stage() -> None:
    said = found(check_reading(in_megatron(), "h100-sxm"), "pipeline shards no gradients")
    assert said is not None
    assert [in_flags("megatron-deepspeed", way.values) for way in said.ways] == [
        {"--no-pipeline-parallel": True},
        {"zero_optimization.stage": 1},
    ]
    assert (
        found(
            check_reading(in_megatron(no_pipeline_parallel=True), "h100-sxm"),
            "pipeline shards no gradients",
        )
        is None
    )


def test_nothing_to_shard_at_one_data_parallel_rank() -> None:
    assert (
        found(
            check_reading(in_megatron(tensor_model_parallel_size=4), "h100-sxm"), "nothing to shard"
        )
        is not None
    )
    assert (
        found(
            check_reading(in_megatron(tensor_model_parallel_size=2), "h100-sxm"), "nothing to shard"
        )
        is None
    )


DEEPSPEED = [
    (
        "batch is dp * mbs * m",
        {**ZERO2, "train_batch_size": 64, "gradient_accumulation_steps": 1},
        {},
        "gradient_accumulation_steps",
    ),
    (
        "pipeline shards no gradients",
        {**ZERO2, "pipeline": {"stages": 2}},
        {},
        "zero_optimization.stage",
    ),
    ("one 16-bit format", {**ZERO2, "bf16": {"enabled": True}}, {}, "fp16.enabled"),
    (
        "offload needs shards",
        {**ZERO2, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
        {},
        "zero_optimization.stage",
    ),
    (
        "partial offload needs zero 3",
        {
            **ZERO2,
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}},
        },
        {},
        "zero_optimization.stage",
    ),
    ("no interleaving", {**ZERO2, "pipeline_num_chunks": 2}, {}, "pipeline_num_chunks"),
    ("fp32 training", {**ZERO2, "fp16": {"enabled": False}}, {}, "bf16.enabled"),
    (
        "configuration and Trainer agree",
        {**ZERO2, "gradient_accumulation_steps": 1},
        {"hf__gradient_accumulation_steps": 4},
        "gradient_accumulation_steps",
    ),
]


@pytest.mark.parametrize(
    ("rule", "config", "more", "flag"), DEEPSPEED, ids=[row[0] for row in DEEPSPEED]
)
def test_deepspeed(rule: str, config: dict[str, Any], more: dict[str, Any], flag: str) -> None:
    said = found(
        check_reading(
            deepspeed(config, "huggingface" if more else "deepspeed", **more), "h100-sxm", 4
        ),
        rule,
    )
    assert said is not None
    assert flag in {name for way in said.ways for name in in_flags("deepspeed", way.values)}
    assert found(check_reading(deepspeed(ZERO2), "h100-sxm", 4), rule) is None


MISSPELT = [
    # what stands there; severity; rule; the change, None where there is none
    (
        {"zero_optimization": {"stage": 3, "offload_optimiser": {"device": "cpu"}}},
        "error",
        "unknown keys",
        {
            "zero_optimization.offload_optimiser": None,
            "zero_optimization.offload_optimizer.device": "cpu",
        },
    ),
    (
        {"zero_optimization": {"stage": 3, "prefetch": 5}},
        "error",
        "unknown keys",
        {"zero_optimization.prefetch": None},
    ),
    (
        {"fp16": {"enabled": True, "opt_level": "O2"}},
        "warning",
        "keys of old versions",
        {"fp16.opt_level": None},
    ),
    ({"gradient_accumulation_step": 2}, "hint", "ignored keys", None),
]
"""DeepSpeedConfig of 0.19.8 raises "Extra inputs are not permitted" for the first three and says
nothing to the last.
"""


@pytest.mark.parametrize(
    ("config", "severity", "rule", "change"), MISSPELT, ids=["near", "far", "16-bit", "top"]
)
def test_keys_that_deepspeed_does_not_have(
    tmp_path: Path, config: dict[str, Any], severity: str, rule: str, change: dict[str, Any] | None
) -> None:
    """As they come from a file: a section refuses them, the top ignores them; what is nearly a key
    is renamed.
    """
    (tmp_path / "ds.json").write_text(json.dumps({**ZERO2, **config}))
    answer = api.check(tmp_path / "ds.json", cluster="a100-80g-sxm", gpus=8, model="llama3-8b")
    said = found(answer, rule)
    assert said is not None and said.severity == severity
    assert [in_flags("deepspeed", way.values) for way in said.ways] == ([change] if change else [])
    assert (answer.verdict == "invalid") == (severity == "error")


def test_flags_that_are_nearly_one() -> None:
    values = megatron(PLAIN)
    said = found(
        check_reading(replace(values, unknown=("--sequence-paralel", "--my-own-flag")), "h100-sxm"),
        "unknown flags",
    )
    assert said is not None and said.message.endswith(
        ": --sequence-paralel (--sequence-parallel?), --my-own-flag"
    )


def test_key_value_heads_by_version() -> None:
    """2 key-value heads over tp 8: refused before megatron-core 0.16, copied since."""
    flags = (
        LLAMA_70B.replace("--num-query-groups 8", "--num-query-groups 2")
        + BATCH
        + "--bf16 --tensor-model-parallel-size 8 --sequence-parallel"
    )
    old, new = (
        check_reading(megatron(flags), "h100-sxm", sets={"framework_version": version})
        for version in ("0.15", "0.16")
    )
    assert old.verdict == "invalid" and found(old, "key-value heads split over tp") is not None
    assert (
        found(new, "key-value heads split over tp") is None
        and found(new, "key-value heads copied") is not None
    )
    unstated = found(check_reading(megatron(flags), "h100-sxm"), "key-value heads split over tp")
    assert unstated is not None and unstated.severity == "warning" and "0.15" in unstated.message


def test_gpus_that_the_sizes_do_not_divide() -> None:
    """12 GPUs and tp 8: 8 or 16 are whole."""
    answer = check_reading(
        megatron(PLAIN + "--tensor-model-parallel-size 8 --sequence-parallel", 12), "h100-sxm"
    )
    said = found(answer, "gpus are tp * pp * dp * cp")
    assert said is not None
    assert {way.values.get("launch.gpus") for way in said.ways} >= {8, 16}


def test_a_stage_layout_goes_where_the_stages_change() -> None:
    flags = (
        PLAIN
        + "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*7|t*9|t*9|t*7L"
    )
    answer = check_reading(megatron(flags), "h100-sxm")
    assert answer.verdict == "fits" and answer.launch.layout.stage_layout
    plan = found(answer, "best plan")
    assert plan is not None and plan.ways[0].values["pipeline_model_parallel_layout"] is None


def test_vocabulary_is_padded_as_megatron_pads() -> None:
    """128,256 to a multiple of 128 * 8: 129,024."""
    flags = LLAMA_70B + BATCH + "--bf16 --tensor-model-parallel-size 8 --sequence-parallel"
    said = found(check_reading(megatron(flags), "h100-sxm"), "vocabulary padded")
    assert said is not None and "129,024" in said.message


@pytest.mark.parametrize(
    ("shards", "asked", "gpus", "refused"),
    [("4", None, 8, False), ("4", 16, 16, True), ("-1", 16, 16, False)],
)
def test_degrees_of_torchtitan_multiply_to_the_gpus(
    tmp_path: Path, shards: str, asked: int | None, gpus: int, refused: bool
) -> None:
    """Its mesh is replicate x shard x cp x tp x pp, and it asserts that this is the world size; -1
    takes what is left.
    """
    stated = f"[parallelism]\ndata_parallel_shard_degree = {shards}\ntensor_parallel_degree = 2\n"
    file = tmp_path / "job.toml"
    file.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len ='
        " 4096\n" + stated
    )
    answer = api.check(file, cluster="h100-sxm", gpus=asked)
    assert answer.recipe.gpus == gpus
    said = found(answer, "degrees multiply to the GPUs")
    assert (said is not None) == refused
    if said is not None:
        api.check(file, cluster="h100-sxm", gpus=asked, fix=tmp_path / "fixed.toml")
        assert "data_parallel_shard_degree = -1" in (tmp_path / "fixed.toml").read_text()
        assert (
            found(api.check(tmp_path / "fixed.toml", cluster="h100-sxm", gpus=asked), said.rule)
            is None
        )


def test_tensor_parallelism_of_the_trainer_is_deepspeeds() -> None:
    """The Trainer has no flag of Megatron's for it: AutoTP stands in the JSON."""
    reading = deepspeed(
        {**ZERO2, "train_batch_size": 24, "gradient_accumulation_steps": 1}, "huggingface"
    )
    said = found(check_reading(reading, "h100-sxm", 4), "batch is dp * mbs * m")
    assert said is not None and "--tensor-model-parallel-size" not in said.message
    tp = changed(interpret(reading, "h100-sxm", 4), {"tp": 2})
    assert in_flags("huggingface", tp) == {"tensor_parallel.autotp_size": 2}


def test_no_gpus_are_refused() -> None:
    with pytest.raises(InputError, match="gpus must be from 1 to"):
        check_reading(megatron(PLAIN), "h100-sxm", 0)


@pytest.mark.parametrize(
    ("stated", "given", "says"),
    [
        ("auto", "", "--set hf.bf16=true"),
        ("auto", "hf.bf16=true", ""),
        ("false", "", "neither bf16.enabled nor fp16.enabled is true"),
    ],
)
def test_auto_is_nobody_s_word_for_fp32(tmp_path: Path, stated: str, given: str, says: str) -> None:
    """transformers' deepspeed integration fills bf16.enabled from the argument, off by default."""
    file = tmp_path / "ds_config.json"
    word = '"auto"' if stated == "auto" else stated
    file.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},'
        f' "bf16": {{"enabled": {word}}}}}'
    )
    sets = (given,) if given else ()
    found = check_file(file, "h100-sxm", 8, "llama3-8b", sets).findings
    messages = [one.message for one in found if one.rule == "fp32 training"]
    assert len(messages) == bool(says)
    assert all(says in message for message in messages)


@pytest.mark.parametrize("params", [False, True])
def test_deepspeeds_estimate_is_of_a_node(tmp_path: Path, params: bool) -> None:
    """What estimate_zero3_model_states_mem_needs of the DeepSpeed that is installed says."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    stage3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    offload = {"offload_optimizer": {"device": "cpu"}}
    if params:
        offload["offload_param"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, **offload},
    }
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    answer = check_file(path, "h100-sxm", 256, "llama3-70b")
    host, device, _ = stage3.estimate_zero3_model_states_mem_needs(
        70_553_706_496,  # parameters of Llama 3 70B
        128_256 * 8_192,
        num_gpus_per_node=8,
        num_nodes=32,
        cpu_offload=True,
        cpu_offload_params=params,
        zero_init=False,
    )
    said = next(each.message for each in answer.findings if "own estimate" in each.message)
    assert f"{device / 2**30:.2f} GiB a GPU and {host / 2**30:.0f} GiB of a node's" in said
