"""Files rebuilt from public threads: what happened there, and the rule and flag of what was advised
or should have been warned of.

Facts of each: the thread that is named. Numbers of what was measured are the threads' own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from planner import api
from planner.advice.findings import Checked
from planner.advice.flag_names import flags
from planner.cost.params.layer import total_params

pytestmark = pytest.mark.slow


CASES = Path(__file__).parent.parent / "data" / "cases"
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """A file, where it ran, what became of it."""

    file: str
    verdict: str
    cluster: str | None = None
    gpus: int | None = None
    model: str | None = None
    says: tuple[tuple[str, str], ...] = ()
    """(rule, flag of one of its ways out or a part of its message)."""
    set: tuple[str, ...] = ()
    """What its run had beside the flags that the file repeats."""


OF_BRIDGE = ("fp8_param_gather=true",)
"""Megatron-Bridge's tensorwise precision gathers parameters in 8 bits by default (its
training/mixed_precision.py), which these flags of its runs do not repeat; without that Transformer
Engine keeps 8-bit copies beside the 16-bit weights.
"""


TABLE = (
    Case(
        "bigscience-v100-bubble/launch.sh",
        "fits",
        "v100-32g-sxm2",
        64,
        None,
        (
            ("more micro-batches", "--global-batch-size"),
            ("fewer micro-batches than stages", "--global-batch-size"),
        ),
    ),
    Case(
        "bridge-3107/launch.sh",
        "marginal",
        "h100-sxm",
        None,
        None,
        (("core_attn recompute useless", "--recompute-granularity"),),
        OF_BRIDGE,
    ),
    Case(
        "codealpaca-14/train.sh",
        "invalid",
        "a100-80g-sxm",
        None,
        None,
        (
            ("batch is dp * mbs * m", "gradient_accumulation_steps"),
            ("configuration and Trainer agree", '"auto"'),
        ),
    ),
    Case(
        "deepspeed-4527/ds_config.json",
        "fits",
        "rtx3090-pcie",
        4,
        "llama2-7b",
        (("DeepSpeed's estimate leaves out activations", "0.49 GiB"),),
    ),
    Case(
        "deepspeed-823/ds_config.json",
        "invalid",
        None,
        4,
        None,
        (("pipeline shards no gradients", "zero_optimization.stage"),),
    ),
    Case(
        "gpt-neox-606/20B.yml",
        "oom",
        "a100-40g-sxm",
        2,
        None,
        (("memory fits the GPU", "--gpus"), ("nothing to shard", "DP=1")),
    ),
    Case(
        # It ran out of memory as it asked for one more shard in fp32. DeepSpeed asks for gradients
        # in fp32 by sub-groups, of which the file's are less than a quarter: 82%.
        "llamafactory-2959/train.sh",
        "marginal",
        "a800-80g-sxm",
        None,
        None,
        (
            ("memory fits the GPU", "zero_optimization.offload_optimizer.device"),
            ("memory fits the GPU", "24 GPUs"),
        ),
    ),
    Case(
        "megatron-bridge-546/launch.sh",
        "invalid",
        None,
        None,
        None,
        (
            ("gpus split over etp * ep * pp", "--expert-tensor-parallel-size"),
            ("gpus split over etp * ep * pp", "defaults to"),
        ),
    ),
    Case(
        "megatron-deepspeed-474/launch.sh",
        "invalid",
        None,
        None,
        None,
        (
            ("pipeline shards no gradients", "--no-pipeline-parallel"),
            ("pipeline shards no gradients", "--zero-stage"),
            ("nothing to shard", "DP=1"),
        ),
    ),
    Case(
        "megatron-llm-6/launch.sh",
        "oom",
        "a100-80g-sxm",
        None,
        None,
        (("memory fits the GPU", "16 GPUs"),),
    ),
    Case(
        "megatron-lm-1304/launch.sh",
        "invalid",
        None,
        None,
        None,
        (
            ("layers split over stages", "--decoder-last-pipeline-num-layers"),
            ("layers split over stages", "they build 28"),
        ),
    ),
    Case(
        "megatron-lm-525/launch.sh",
        "oom",
        "v100-32g-sxm2",
        None,
        None,
        (
            ("memory fits the GPU", "--recompute-granularity selective"),
            ("memory fits the GPU", "--micro-batch-size 2"),
        ),
    ),
    Case(
        "megatron-lm-606/launch.sh",
        "oom",
        "a100-40g-sxm",
        None,
        None,
        (("memory fits the GPU", "--tensor-model-parallel-size"),),
    ),
    Case(
        "ms-swift-5737/launch.sh",
        "invalid",
        None,
        None,
        None,
        (
            ("layers split over stages", "--decoder_last_pipeline_num_layers 10"),
            ("layers split over stages", "12/12/12/10"),
            ("gpus split over etp * ep * pp", "--expert_model_parallel_size"),
        ),
    ),
    Case(
        "ms-swift-8219/launch.sh",
        "invalid",
        None,
        32,
        None,
        (("key-value heads split over tp", "--tensor_model_parallel_size"),),
    ),
    Case(
        "nemo-speech-14288/run.sh",
        "invalid",
        None,
        None,
        None,
        (
            ("micro-batches interleave", "model.global_batch_size"),
            ("micro-batches interleave", "model.global_batch_size = 6"),
        ),
    ),
    Case("starcoder-41/ds_config.json", "fits", "a100-80g-sxm", 8),
    Case(
        "starcoder-41/ds_config.json",
        "invalid",
        "a100-80g-sxm",
        1,
        None,
        (("batch is dp * mbs * m", "gradient_accumulation_steps"),),
    ),
)


def answer(case: Case) -> Checked:
    return api.check(
        CASES / case.file, cluster=case.cluster, gpus=case.gpus, model=case.model, set=case.set
    )


@pytest.mark.parametrize(
    "case", TABLE, ids=[f"{case.file.split('/')[0]}-{case.gpus}" for case in TABLE]
)
def test_verdict_and_advice(case: Case) -> None:
    got = answer(case)
    assert got.verdict == case.verdict
    for rule, text in case.says:
        told = [one for one in got.findings if one.rule == rule]
        assert told, f"{rule} is not among {[one.rule for one in got.findings]}"
        ways = {
            name
            for one in told
            for way in one.ways
            for name in flags(got.launch.reading.kind, way.values)
        }
        assert text in ways or any(text in one.message for one in told), (rule, text)


STATES = (
    ("megatron-lm-606/launch.sh", "a100-40g-sxm", None, 47.1, 0.05),
    ("megatron-llm-6/launch.sh", "a100-80g-sxm", None, 86.5, 0.07),
    ("megatron-lm-1000/launch.sh", "a100-80g-sxm", None, 65.7, 0.02),
    ("gpt-neox-606/20B.yml", "a100-40g-sxm", 2, 153.0, 0.05),
    ("llamafactory-2959/train.sh", "a800-80g-sxm", None, 67.3, 0.02),
    ("bridge-3107/launch.sh", "h100-sxm", None, 49.3, 0.05),
)


@pytest.mark.parametrize(
    ("file", "cluster", "gpus", "gib", "tolerance"),
    STATES,
    ids=[row[0].split("/")[0] for row in STATES],
)
def test_states_are_what_the_threads_counted(
    file: str, cluster: str, gpus: int | None, gib: float, tolerance: float
) -> None:
    own = OF_BRIDGE if file.startswith("bridge") else ()
    said = api.check(CASES / file, cluster=cluster, gpus=gpus, set=own).estimate
    assert said is not None
    memory = said.memory
    assert float(
        memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
    ) / GIB == pytest.approx(gib, rel=tolerance)


TIMES = (
    ("bigscience-v100-bubble/launch.sh", "v100-32g-sxm2", 64, "step_s", 2.738, 0.30),
    ("bridge-llama3-70b-64xh100/launch.sh", "h100-sxm", None, "tokens_per_s_per_gpu", 1640.0, 0.12),
    ("pai-643/launch.sh", "h800-sxm", None, "step_s", 10.361, 0.20),
)


@pytest.mark.parametrize(
    ("file", "cluster", "gpus", "name", "measured", "tolerance"),
    TIMES,
    ids=[row[0].split("/")[0] for row in TIMES],
)
def test_times_are_near_those_measured(
    file: str, cluster: str, gpus: int | None, name: str, measured: float, tolerance: float
) -> None:
    said = api.check(CASES / file, cluster=cluster, gpus=gpus).estimate
    assert said is not None and getattr(said, name) == pytest.approx(measured, rel=tolerance)


def test_fp32_of_megatron_1000() -> None:
    """The dump of its arguments: params_dtype float32 and a padded vocabulary of 129,024."""
    got = api.check(CASES / "megatron-lm-1000/launch.sh", cluster="a100-80g-sxm")
    rules = {one.rule: one.message for one in got.findings}
    assert got.recipe.precision == "fp32" and "129,024" in rules["vocabulary padded"]
    assert {
        "fp32 training",
        "distributed optimizer has no effect",
        "flash attention needs 16 bits",
    } <= rules.keys()


def test_width_and_logits_of_megatron_525() -> None:
    """ffn_hidden_size 3392 by default; logits 1024 * 4 * 50304 * 4 bytes = 786 MiB; activations of
    21.5 GB without recomputation.
    """
    got = api.check(
        CASES / "megatron-lm-525/launch.sh",
        cluster="v100-32g-sxm2",
        oom="Tried to allocate 786.00 MiB",
    )
    assert got.recipe.model.ffn_size == 3392
    assert got.oom is not None and got.oom["matches"][0]["tensor"] == "fp32 logits"
    assert got.estimate is not None and float(
        got.estimate.memory.activations_bytes
    ) / 1e9 == pytest.approx(21.5, rel=0.1)
    assert not any(
        "flash" in name for one in got.findings for way in one.ways for name in way.values
    )


def test_expert_tensor_parallel_size_of_one_passes() -> None:
    got = api.check(CASES / "megatron-bridge-546/launch_ok.sh")
    assert got.verdict != "invalid"


def test_parameters_of_llamafactory_2959_and_its_shard() -> None:
    got = api.check(
        CASES / "llamafactory-2959/train.sh",
        cluster="a800-80g-sxm",
        oom="Tried to allocate 16.83 GiB",
    )
    assert total_params(got.recipe.model) == pytest.approx(72.29e9, rel=0.01)
    assert got.oom is not None and got.oom["matches"][0]["tensor"] == "one fp32 flat shard"


def test_key_value_heads_since_0_16() -> None:
    """ms-swift#8219: 2 groups over tp 8 are refused before megatron-core 0.16 alone."""
    got = api.check(CASES / "ms-swift-8219/launch.sh", gpus=32, set=["framework_version=0.16"])
    assert "key-value heads split over tp" not in {
        one.rule for one in got.findings if one.severity == "error"
    }


TOO_FEW_GPUS = ("ms-swift-8219/launch.sh",)
"""397 billion parameters on 32 GPUs: weights and gradients alone, 6 bytes each, are 69 GiB of 80.
"""
BAD = [case for case in TABLE if case.verdict in ("invalid", "oom")]


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case.file.split('/')[0]}-{case.gpus}")
def test_fixed_file_is_legal(case: Case, tmp_path: Path) -> None:
    """What --fix writes is read again: it is legal, and fits where its size is known and the GPUs
    are enough.
    """
    before = (CASES / case.file).read_text()
    got = api.check(
        CASES / case.file,
        cluster=case.cluster,
        gpus=case.gpus,
        model=case.model,
        fix=tmp_path / Path(case.file).name,
    )
    assert got.fixed and got.diff and (CASES / case.file).read_text() == before
    for beside in (CASES / case.file).parent.iterdir():
        if not (tmp_path / beside.name).exists():
            (tmp_path / beside.name).write_text(beside.read_text())
    again = api.check(
        tmp_path / Path(case.file).name,
        cluster=case.cluster,
        gpus=got.edits.get("--gpus", case.gpus),
        model=case.model,
    )
    expected = "oom" if case.file in TOO_FEW_GPUS else "fits"
    assert again.verdict == expected, [
        one.message[:200] for one in again.findings if one.severity == "error"
    ]
