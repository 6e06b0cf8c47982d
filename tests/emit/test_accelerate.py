"""Every file is read by Accelerate 1.15 itself: its launcher up to the start of processes, then its
plugins.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.emit import accelerate, table
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout
from planner.plan_files import launch_texts
from planner.rules.table import mask
from planner.specs.recipe import Recipe
from tests import documents, recorder
from tests.judges import judging, wheels

JUDGE = str(Path(__file__).parents[1] / "judges" / "accelerate_judge.py")
FULL = RECOMPUTE_CODE["full"]
STACKS: dict[str, dict[str, Any]] = {
    "torch": {"stack": "torch-fsdp", "framework": "torch", "framework_version": "2.13"},
    "deepspeed": {"stack": "deepspeed", "framework": "deepspeed", "framework_version": "0.19"},
}


def question(framework: str, gpus: int = 16, **changes: Any) -> Recipe:
    return documents.recipe("llama3-8b", gpus, **{**STACKS[framework], **changes})


def layout(recipe: Recipe, **knobs: Any) -> Layout:
    return documents.layout(recipe, **{"zero": 3, "sp": 0, **knobs})


def written(recipe: Recipe, one: Layout, launcher: str = "torchrun") -> dict[str, str]:
    return table.files(recipe, one, None, launcher, form="accelerate")


def words(recipe: Recipe, nodes: int = 2) -> list[str]:
    """What the launch file gives on the second node; `test_launched` holds it against the file."""
    json_too = ["--deepspeed_config_file", "FOLDER/ds_config.json"] * (
        recipe.framework == "deepspeed"
    )
    count = (
        f"--machine_rank 1 --num_machines {nodes} --num_processes {recipe.gpus} --main_process_ip"
        " 10.0.0.1 --main_process_port 29500"
    )
    return [
        "--config_file",
        "FOLDER/accelerate_config.yaml",
        *json_too,
        *count.split(),
        "train.py",
        "--lr",
        "1e-5",
    ]


def verdicts(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return judging.verdicts(
        [sys.executable, JUDGE], wheels.environment("accelerate", "1.15.0"), cases
    )


def wrong(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """Where Accelerate's reading differs from the layout."""
    if not said["accepted"]:
        return [said["message"]]
    meant: dict[str, Any] = {"script": "train.py", "rank": 1, "processes": recipe.gpus}
    if recipe.framework == "torch":
        every = bool(one.recompute == FULL and not one.recompute_layers)
        meant |= {
            "fsdp": True,
            "wraps": "transformer_auto_wrap_policy",
            "mixed_precision": "no" if recipe.precision == "fp32" else recipe.precision,
            "plugin": {
                "fsdp_version": 2,
                "reshard_after_forward": one.zero == 3,
                "activation_checkpointing": every,
            },
            "sizes": {"dp_replicate": 1, "dp_shard": one.dp, "tp": one.tp, "cp": one.cp, "sp": 1},
        }
    else:
        meant |= {"deepspeed": True, "by_torchrun": True, "zero": one.zero, "init": one.zero == 3}
        if one.cp > 1:
            meant["sizes"] = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "cp": 1, "sp": one.cp}
        if (
            said["json"]["gradient_accumulation_steps"] != one.m
            or said["json"]["train_micro_batch_size_per_gpu"] != one.mbs
        ):
            return ["batch of the JSON"]
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def drawn(seed: int, count: int) -> list[tuple[Recipe, Layout]]:
    """Layouts that the rules let through and Accelerate can start."""
    rng, out = np.random.default_rng(seed), []
    while len(out) < count:
        framework = str(rng.choice(list(STACKS)))
        recipe = question(
            framework,
            int(rng.choice([8, 16, 64])),
            precision=str(rng.choice(["bf16", "bf16", "fp32", "fp16"])),
        )
        tp, cp, mbs = (int(rng.choice(values)) for values in ((1, 1, 2, 4), (1, 1, 2, 4), (1, 2)))
        dp = recipe.gpus // (tp * cp)
        recompute = int(rng.choice([0, FULL]))
        one = Layout(
            tp=tp,
            cp=cp,
            dp=dp,
            mbs=mbs,
            m=max(recipe.global_batch_size // max(dp * mbs, 1), 1),
            zero=int(rng.choice([2, 3] if framework == "torch" else [0, 1, 2, 3])),
            recompute=recompute,
            recompute_layers=int(rng.choice([0, 2])) if recompute else 0,
        )
        if dp and mask(recipe, one)[0].all():
            try:
                accelerate.check(recipe, one)
            except InputError:
                continue
            out.append((recipe, one))
    return out


def check(seed: int, count: int) -> int:
    some = drawn(seed, count)
    said = verdicts(
        [{"files": written(recipe, one), "words": words(recipe)} for recipe, one in some]
    )
    found = [
        (recipe.framework, one.named(), wrong(recipe, one, reply))
        for (recipe, one), reply in zip(some, said, strict=True)
    ]
    assert not (faults := [one for one in found if one[2]]), (
        f"{len(faults)} of {len(some)}, first: {faults[0]}"
    )
    return len(some)


def test_sweep() -> None:
    assert check(seed=2, count=40) == 40


def test_a_changed_word_is_found() -> None:
    """The oracle itself: a key that Accelerate does not have, a thing said twice, FSDP with nothing
    to shard over.
    """
    recipe = question("deepspeed")
    files = written(recipe, layout(recipe))
    name = accelerate.FILE
    unknown = {**files, name: files[name] + "precision: bf16\n"}
    twice = {
        **files,
        name: files[name].replace("zero3_init_flag", "zero_stage: 2\n  zero3_init_flag"),
    }
    said = verdicts([{"files": one, "words": words(recipe)} for one in (unknown, twice)])
    assert [reply["accepted"] for reply in said] == [False, False]
    assert "precision" in said[0]["message"] and "zero_stage" in said[1]["message"]


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a pipeline": ("torch", {}, {"pp": 2}, "--pp 1"),
    "8 bits": ("torch", {"precision": "fp8-rowwise"}, {}, "bf16"),
    "nothing to shard over": ("torch", {}, {"tp": 8, "gpus": 8}, "dp 2"),
    "experts over ranks": ("torch", {"model": "mixtral-8x7b"}, {"ep": 8}, "deepspeed"),
    "Megatron-DeepSpeed's tp": ("deepspeed", {"framework_version": "0.16"}, {"tp": 2}, "--tp 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_a_way_out(what: str) -> None:
    framework, changes, knobs, way_out = REFUSED[what]
    model = changes.get("model", "llama3-8b")
    recipe = documents.recipe(
        model,
        knobs.pop("gpus", 16),
        **{**STACKS[framework], **{k: x for k, x in changes.items() if k != "model"}},
    )
    with pytest.raises(InputError, match=way_out):
        launch_texts(recipe, layout(recipe, **knobs), "torchrun", None, form="accelerate")


def test_megatron_is_no_matter_of_accelerate() -> None:
    recipe = documents.recipe(gpus=64)
    with pytest.raises(InputError, match="--framework deepspeed"):
        written(recipe, documents.layout(recipe, tp=8))


def test_the_deepspeed_launcher_starts_its_own() -> None:
    recipe = question("deepspeed")
    with pytest.raises(InputError, match="torchrun"):
        written(recipe, layout(recipe), "deepspeed")


def test_unknown_format_answers_with_the_nearest() -> None:
    recipe = question("deepspeed")
    with pytest.raises(InputError, match="accelerate"):
        table.files(recipe, layout(recipe), None, form="accelerat")


@pytest.mark.parametrize("launcher, file", [("torchrun", "launch.sh"), ("slurm", "launch.sbatch")])
@pytest.mark.parametrize("framework", STACKS)
def test_launched(launcher: str, file: str, framework: str, tmp_path: Path) -> None:
    """Under bash, with an accelerate that records what it is given: the words that the parser above
    has read.
    """
    recipe = question(framework)
    stand = tmp_path / "accelerate"
    stand.write_text('#!/usr/bin/env bash\nprintf \'%s\\0\' "$@" >"$RECORD.words"\n')
    stand.chmod(0o755)
    done, record = recorder.run(
        tmp_path,
        written(recipe, layout(recipe), launcher)[file],
        "--lr",
        "1e-5",
        NODE_RANK="1",
        MASTER_ADDR="10.0.0.1",
        FILES="FOLDER",
    )
    assert done.returncode == 0, done.stderr
    called = record.with_suffix(".words").read_text().split("\0")[:-1]
    assert called[0] == "launch"
    assert sorted(called[1:]) == sorted(words(recipe)) and called[-3:] == [
        "train.py",
        "--lr",
        "1e-5",
    ]
