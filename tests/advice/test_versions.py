"""A stated version in which a flag or a value does not exist: what the parsers of that version
say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import api
from planner.advice import check
from planner.advice.findings import Checked

MODEL = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    " --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000"
    " --attention-dropout 0 --hidden-dropout 0"
)
ABSENT = "flags of other versions"


def checked(folder: Path, words: str, *sets: str) -> Checked:
    script = folder / "launch.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 {MODEL} {words}\n")
    return check.check_file(script, "h100-sxm", 8, None, sets)


def is_absent(answer: Checked) -> bool:
    return any(finding.rule == ABSENT for finding in answer.findings)


STATED = {
    "--cuda-graph-modules attn": ("0.15", "since 0.18", "--cuda-graph-impl transformer_engine"),
    "--fine-grained-activation-offloading --offload-modules core_attn": ("0.14", "since 0.16", ""),
    "--cuda-graph-impl local": ("0.14", "since 0.15", ""),
}
"""By flags a release whose training/arguments.py has not all of them, since when it has, and flags
beside them that it has.
"""


@pytest.mark.parametrize("words", STATED)
def test_what_the_version_has_not_is_not_counted(tmp_path: Path, words: str) -> None:
    version, says, others = STATED[words]
    plain = checked(tmp_path, others, f"software=megatron-core@{version}")
    answer = checked(tmp_path, f"{others} {words}", f"software=megatron-core@{version}")
    assert answer.verdict == "invalid"
    assert any(says in finding.message for finding in answer.findings)
    assert answer.estimate is not None and plain.estimate is not None
    assert answer.estimate.step_s == plain.estimate.step_s
    assert answer.estimate.memory_gib == plain.estimate.memory_gib


def test_te_s_loss_is_refused_from_0_18_2(tmp_path: Path) -> None:
    """training/arguments.py of 0.18.2 and 0.19 assert it, those of 0.17.1 and 0.18.0 do not."""
    words = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"
    rule = "cross entropy is not fused by TE"
    said = {}
    for version in ("0.17", "0.18", "0.19"):
        answer = checked(tmp_path, words, f"framework_version={version}")
        said[version] = [each.severity for each in answer.findings if each.rule == rule]
    assert said == {"0.17": [], "0.18": ["warning"], "0.19": ["error"]}
    alone = checked(tmp_path, "--cross-entropy-fusion-impl te", "framework_version=0.19")
    assert alone.verdict == "fits"


def test_a_version_that_nobody_states_follows_from_the_flags(tmp_path: Path) -> None:
    answer = checked(tmp_path, "--cuda-graph-impl local --cuda-graph-scope full_iteration")
    assert answer.launch.recipe.framework_version == "0.19"
    old = checked(tmp_path, "--no-rl-offload-kv-cache-during-training")
    assert old.launch.recipe.framework_version == "0.16"
    assert not is_absent(answer) and not is_absent(old)


def test_a_script_that_names_its_version_is_held_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    api.recommend(
        model="llama3-8b",
        gpus=8,
        cluster="h100-sxm",
        software="megatron-core@0.15",
        out=str(folder),
    )
    launch = folder / "launch.sh"
    assert check.check_file(launch).verdict == "fits"
    launch.write_text(launch.read_text().replace("--bf16", "--bf16 --cuda-graph-modules attn"))
    assert is_absent(check.check_file(launch))


def test_deepspeed_s_models_forbid_keys_that_they_do_not_know(tmp_path: Path) -> None:
    """runtime/zero/offload_config.py has super_offload from 0.18 on."""
    offload = {"device": "cpu", "super_offload": True}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": offload},
    }
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    verdicts = {
        version: check.check_file(
            path, "h100-sxm", 8, "llama3-8b", [f"framework_version={version}"]
        ).verdict
        for version in ("0.17", "0.18")
    }
    assert verdicts == {"0.17": "invalid", "0.18": "fits"}
