"""Branches that hang on what nobody sets: what is missing may stand in one of them, so nothing is
called an error for its absence.
"""

from __future__ import annotations

from pathlib import Path

from planner import api
from tests.advice.by_hand import GPT

SCRIPT = """#!/bin/bash
DO=${1}
if [ $DO = true ]; then
    do_option="--use-distributed-optimizer --overlap-grad-reduce"
elif [ $DO = false ]; then
    do_option=""
fi
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 \
--num-attention-heads 16 --seq-length 1024 \\
  --max-position-embeddings 1024 --vocab-size 32000 --bf16 --micro-batch-size 1 \
--global-batch-size 8 --overlap-param-gather $do_option
"""
RULE = "parameters gather with the distributed optimizer"


def severities(path: Path, *sets: str) -> dict[str, str]:
    answer = api.check(path, cluster="h100-sxm", set=sets)
    return {one.rule: one.severity for one in answer.findings} | {"verdict": answer.verdict}


def test_what_a_branch_may_state_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    open_ = severities(path)
    assert open_[RULE] == "warning" and open_["verdict"] == "fits"


def test_with_the_branch_chosen_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    assert severities(path, "DO=false")[RULE] == "error"
    assert RULE not in severities(path, "DO=true")


def test_what_is_stated_stays_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT.replace("--bf16", "--bf16 --fp16"))
    assert severities(path)["verdict"] == "invalid"


def test_a_variable_that_no_script_reads_is_said(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(f"torchrun --nproc_per_node $NPROC pretrain_gpt.py {GPT}\n")
    sets = ["NPROC=8", "NPROCS=16", "micro_batch_size=1"]
    answer = api.check(path, cluster="h100-sxm", set=sets)
    assert answer.launch.recipe.gpus == 8
    unused = [note for note in answer.launch.reading.notes if "nothing uses" in note]
    assert unused == ["nothing uses --set NPROCS: the script reads no variable of that name"]
    assert unused[0] in " ".join(str(answer).split())
