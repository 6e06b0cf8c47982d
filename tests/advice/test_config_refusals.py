"""Flags that need or exclude one another: `check` finds an error where megatron-core 0.19.2 refuses
them (tests/data/megatron_switch_cases.csv, its own verdicts), nowhere else.
"""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import pytest

from planner.advice import not_in_layout, parser_errors, refused_values, traps
from planner.intake.read import read
from planner.interpret.interpret import Launch, interpret
from planner.rules.table import breaches

DATA = Path(__file__).parents[1] / "data" / "megatron_switch_cases.csv"
with DATA.open(newline="") as stream:
    CASES = tuple(csv.DictReader(stream))
DENSE = (
    "--num-layers 8 --hidden-size 1024 --ffn-hidden-size 2048 --num-attention-heads 16 --swiglu"
    " --disable-bias-linear --normalization RMSNorm --position-embedding-type rope"
    " --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0"
    " --seq-length 1024 --max-position-embeddings 1024 --vocab-size 32000"
    " --tokenizer-type NullTokenizer --mock-data --train-iters 10 --lr 1e-4 --micro-batch-size 1"
    " --global-batch-size 32 --bf16 --use-distributed-optimizer --overlap-grad-reduce"
    " --overlap-param-gather"
)
EXPERTS = (
    " --num-experts 16 --moe-ffn-hidden-size 512 --moe-router-topk 2 --moe-grouped-gemm"
    " --moe-token-dispatcher-type alltoall --moe-router-load-balancing-type aux_loss"
    " --expert-model-parallel-size 4"
)
GPUS = 8


def words(case: dict[str, str]) -> list[str]:
    """The base with what a case adds, and without the switches that it takes away."""
    base = DENSE + EXPERTS * (case["model"] == "experts")
    kept = [word for word in base.split() if word not in case["without"].split()]
    return kept + case["flags"].split()


def environment(case: dict[str, str]) -> dict[str, str | None]:
    stated = dict(pair.split("=") for pair in case["environment"].split())
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **stated}


def launch(file: Path, flags: str, exports: str = "") -> Launch:
    file.write_text(f"{exports}\ntorchrun --nproc-per-node {GPUS} pretrain_gpt.py {flags}\n")
    return interpret(read(file), "h100-sxm")


def errors(stated: Launch) -> list[str]:
    """The rules that `check` says are broken."""
    parts = (not_in_layout, parser_errors, refused_values, traps)
    found = [finding for part in parts for finding in part.findings(stated)]
    stops = [finding.rule for finding in found if finding.severity == "error"]
    return stops + [breach.rule for breach in breaches(stated.recipe, stated.layout)]


@pytest.mark.parametrize("accepted", ["yes", "no"])
def test_an_error_stands_where_megatron_refuses(tmp_path: Path, accepted: str) -> None:
    wrong = []
    for case in CASES:
        if case["accepted"] != accepted:
            continue
        variables = " ".join(f"{name}={value}" for name, value in environment(case).items())
        stated = launch(tmp_path / "train.sh", shlex.join(words(case)), f"export {variables}")
        broken = errors(stated)
        if bool(broken) == (accepted == "yes"):
            wrong.append((case["flags"], broken))
    assert not wrong


@pytest.mark.judge
def test_the_verdicts_are_megatron_s() -> None:
    from tests.judges import megatron_oracle  # at the top it would mark the whole file

    cases = [
        megatron_oracle.Case(str(number), words(case), GPUS, environment(case))
        for number, case in enumerate(CASES)
    ]
    for case, verdict in zip(CASES, megatron_oracle.verdicts(cases), strict=True):
        assert verdict["accepted"] == (case["accepted"] == "yes"), (case, verdict)


def test_modules_that_a_model_has_not_recompute_nothing(tmp_path: Path) -> None:
    """Transformer Engine's dense layers have no norms of their own, and Megatron-LM takes the
    name: the launch is that without it.
    """
    repeated = f"{DENSE} --recompute-granularity selective --recompute-modules"
    idle = launch(tmp_path / "idle.sh", f"{repeated} layernorm mlp")
    plain = launch(tmp_path / "plain.sh", f"{repeated} mlp")
    assert idle.layout == plain.layout
    said = [[one.rule for one in traps.findings(each)] for each in (idle, plain)]
    assert ["recomputed modules are there" in rules for rules in said] == [True, False]
