"""What a file turns on and no figure counts is named; what is off, or counted, is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.advice import not_priced, parser_errors
from planner.advice.findings import Finding
from planner.advice.not_priced import HEAVY
from planner.intake.read import read
from planner.interpret.interpret import Launch, interpret
from planner.specs.switches.table import not_modelled

MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024"
    " --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --bf16"
)
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 4096
enable_cpu_offload = {offload}
[activation_checkpoint]
mode = "{mode}"
"""


def launch(path: Path, text: str) -> Launch:
    path.write_text(text)
    return interpret(read(path), "h100-sxm", 8, None if "toml" in path.name else "llama3-8b")


def severities(found: list[Finding]) -> list[str]:
    return [finding.severity for finding in found]


@pytest.mark.parametrize(
    "flags, says",
    [
        ("--manual-gc", ["hint"]),
        ("--no-align-param-gather", ["hint"]),
        ("--mlp-chunks-for-training 4", ["warning"]),
        ("--mlp-chunks-for-training 1", []),
        ("--moe-grouped-gemm --num-experts 8", []),
        ("--outer-dp-sharding-strategy no_shard", []),
        ("--first-last-layers-bf16 --manual-gc", ["warning", "hint"]),
    ],
)
def test_flags_of_megatron(tmp_path: Path, flags: str, says: list[str]) -> None:
    found = not_priced.findings(launch(tmp_path / "train.sh", f"{MEGATRON} {flags}\n"))
    assert severities(found) == says


def test_copies_of_megatron_fsdp(tmp_path: Path) -> None:
    """core/distributed/fsdp/mcore_fsdp_adapter.py shards within each of so many instances; under
    the distributed optimizer they are priced.
    """
    shards = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
    for sharding, says in ((shards, ["warning"]), ("--use-distributed-optimizer", [])):
        text = f"{MEGATRON} {sharding} --num-distributed-optimizer-instances 2\n"
        assert severities(not_priced.findings(launch(tmp_path / "train.sh", text))) == says


@pytest.mark.parametrize(
    "keys, named",
    [
        ({"zenflow": {"topk_ratio": 0.1}}, ["zero_optimization.zenflow.topk_ratio"]),
        ({"mics_shard_size": 4}, ["zero_optimization.mics_shard_size"]),
        ({"mics_shard_size": -1, "overlap_comm": True}, []),
    ],
)
def test_keys_of_deepspeed(tmp_path: Path, keys: dict[str, Any], named: list[str]) -> None:
    document = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, **keys},
    }
    found = not_priced.findings(launch(tmp_path / "ds_config.json", json.dumps(document)))
    assert severities(found) == ["warning"] * len(named)
    assert all(name in finding.message for name, finding in zip(named, found, strict=True))


@pytest.mark.parametrize(
    "offload, mode, named",
    [
        ("true", "none", "training.enable_cpu_offload"),
        ("false", "memory_budget", "activation_checkpoint.mode"),
        ("false", "full", ""),
    ],
)
def test_keys_of_torchtitan(tmp_path: Path, offload: str, mode: str, named: str) -> None:
    text = TITAN.format(offload=offload, mode=mode)
    found = not_priced.findings(launch(tmp_path / "job.toml", text))
    assert severities(found) == ["warning"] * bool(named)
    assert all(named in finding.message for finding in found)


@pytest.mark.parametrize("software", ["megatron-core@0.19", "deepspeed@0.19", "torchtitan@0.2"])
def test_plans_turn_nothing_on_that_is_not_priced(tmp_path: Path, software: str) -> None:
    api.recommend(
        model="llama3-8b", gpus=8, cluster="h100-sxm", software=software, top=1, out=tmp_path
    )
    found = not_priced.findings(interpret(read(tmp_path / "launch.sh"), "h100-sxm"))
    assert not found


def test_what_is_heavy_is_not_modelled() -> None:
    names = {
        name for of_one in not_modelled().values() for key in of_one for name in key.split(", ")
    }
    assert HEAVY.keys() <= names


def test_flags_that_turn_off_are_flags(tmp_path: Path) -> None:
    """training/arguments.py has --no-align-param-gather, and no flag that turns it on."""
    for flag, errors in (("--no-align-param-gather", []), ("--align-param-gather", ["warning"])):
        found = parser_errors.findings(launch(tmp_path / "train.sh", f"{MEGATRON} {flag}\n"))
        assert severities([one for one in found if one.rule == "no such flag"]) == errors
