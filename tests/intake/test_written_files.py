"""What `recommend --out` writes for other software and other launchers `check` reads as the plan
that it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import InputError
from planner.intake.read import read
from planner.specs.switches.table import BY_FRAMEWORK, settings_of


def read_back(folder: Path, file: str, launcher: str, form: str | None, **words: Any) -> Any:
    """The plan, and what `check` reads in the file that it was written to."""
    question = api.question(gpus=16, cluster="h100-sxm", global_batch_size=64, **words)
    answer = api.recommend(question, top=1, out=folder, launcher=launcher, format=form)
    checked = api.check(folder / file, cluster="h100-sxm")
    plan = answer.best
    assert plan is not None and checked.estimate is not None
    assert checked.launch.layout.named() == plan.layout.named()
    assert checked.estimate.step_s == pytest.approx(plan.estimate.step_s, rel=1e-9)
    assert checked.estimate.memory_bytes == pytest.approx(plan.estimate.memory_bytes, rel=1e-9)
    return answer, checked


@pytest.mark.parametrize(
    ("model", "precision", "switches"),
    [
        ("llama3-8b", "fp8-delayed", ("grad_reduce_dtype=bf16", "cuda_graph=layers")),
        ("llama3-8b", "bf16", ("overlap_grad_reduce=off", "overlap_param_gather=off")),
        ("qwen3-30b-a3b", "bf16", ("moe_dispatcher=deepep", "ddp_bucket_size=50000000")),
    ],
)
def test_bridge(model: str, precision: str, switches: tuple[str, ...], tmp_path: Path) -> None:
    """Words of the overrides win over what the recipe's name and NeMo's stack bring."""
    words = {"model": model, "precision": precision, "switch": switches, "seq_length": 4096}
    answer, checked = read_back(tmp_path, "launch.sh", "torchrun", "bridge", **words)
    assert checked.launch.recipe.precision == precision
    written, read = settings_of(answer.recipe.software), settings_of(checked.launch.recipe.software)
    layout = answer.best.layout
    for name, switch in BY_FRAMEWORK["megatron"].items():
        if switch.exists(answer.recipe, layout) & switch.acts(answer.recipe, layout):
            assert read[name] == written[name], name
    assert "overrides.yaml train.micro" in checked.launch.reading.values["micro_batch_size"].where


@pytest.mark.parametrize(
    ("framework", "model"),
    [("deepspeed", "llama3-8b"), ("deepspeed", "mixtral-8x7b"), ("torch", "llama3-8b")],
)
def test_accelerate(framework: str, model: str, tmp_path: Path) -> None:
    """accelerate's file and DeepSpeed's beside it, and what variables tell the script."""
    words = {"model": model, "framework": framework, "seq_length": 4096}
    answer, checked = read_back(tmp_path, "launch.sh", "torchrun", "accelerate", **words)
    assert checked.launch.recipe.framework == framework
    assert checked.launch.recipe.model.name == answer.recipe.model.name
    assert checked.launch.recipe.seq_length == 4096
    where = checked.launch.reading.values["seq_length"].where
    assert where.startswith("launch.sh:") and "PLAN_SEQ_LENGTH" in where


def test_accelerate_must_say_how_it_trains(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("accelerate launch --num_processes 8 train.py\n")
    with pytest.raises(InputError, match="must state how it trains"):
        api.check(script)


@pytest.mark.parametrize(
    ("file", "launcher", "form"),
    [
        ("launch.k8s.yaml", "kubernetes", None),
        ("launch.k8s.yaml", "kubernetes", "bridge"),
        ("launch.sky.yaml", "skypilot", None),
    ],
)
def test_jobs(file: str, launcher: str, form: str | None, tmp_path: Path) -> None:
    words = {"model": "llama3-8b", "seq_length": 4096}
    answer, _ = read_back(tmp_path, file, launcher, form, **words)
    if form:  # the files of the ConfigMap are read, not those beside
        (tmp_path / "bridge_overrides.yaml").unlink()
        again = api.check(tmp_path / file, cluster="h100-sxm")
        assert again.launch.layout.named() == answer.best.layout.named()


def test_places_in_a_job(tmp_path: Path) -> None:
    """Values stand where the YAML has them, and are changed there."""
    read_back(tmp_path, "launch.k8s.yaml", "kubernetes", None, model="llama3-8b", seq_length=4096)
    path = tmp_path / "launch.k8s.yaml"
    text = path.read_text()
    reading = read(path)
    assert reading.unresolved == ()
    for name in ("micro_batch_size", "seq_length", "env.MASTER_ADDR"):
        value, edit = reading.values[name], reading.edits[name]
        assert edit.file == str(path) and text[edit.start : edit.end] == str(value.value)
        line = text.count("\n", 0, edit.start) + 1
        assert value.where.startswith(f"launch.k8s.yaml:{line} ")
    changed = text.replace(
        "name: MASTER_ADDR",
        "name: GPUS_PER_NODE\n          value: '4'\n        - name: MASTER_ADDR",
    )
    path.write_text(changed)
    assert read(path).values["launch.gpus_per_node"].value == 4


SKY = """\
num_nodes: 2
resources:
  accelerators: H100:8
envs: {MBS: 2}
run: |
  cat > ds.json <<EOF
  {"train_micro_batch_size_per_gpu": $MBS, "zero_optimization": {"stage": 2},
   "bf16": {"enabled": true}}
  EOF
  accelerate launch --num_machines $SKYPILOT_NUM_NODES \\
    --num_processes $((SKYPILOT_NUM_NODES * SKYPILOT_NUM_GPUS_PER_NODE)) \\
    --use_deepspeed --deepspeed_config_file ds.json train.py
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: train
    command: [torchrun, --nproc-per-node, "4", pretrain_gpt.py]
    args: [--num-layers, "24", --hidden-size, "2048", --micro-batch-size, '3']
"""


@pytest.mark.parametrize("form", [None, "bridge"])
def test_narrow_states(form: str | None, tmp_path: Path) -> None:
    """A precision-aware optimizer moves fewer bytes, too."""
    words = {"model": "llama3-8b", "optimizer": "precision-aware", "seq_length": 4096}
    _, checked = read_back(tmp_path, "launch.sh", "torchrun", form, **words)
    assert checked.launch.recipe.software.states.optimizer_state_bytes == 6


def test_jobs_of_others(tmp_path: Path) -> None:
    sky, pod = tmp_path / "sky.yaml", tmp_path / "pod.yaml"
    sky.write_text(SKY)
    values = read(sky).values
    assert values["launch.gpus"].value == 16
    assert values["deepspeed.train_micro_batch_size_per_gpu"].value == 2
    assert values["deepspeed.zero_optimization.stage"].value == 2
    pod.write_text(POD)
    reading = read(pod)
    assert (reading.values["launch.gpus"].value, reading.values["num_layers"].value) == (4, 24)
    edit = reading.edits["micro_batch_size"]
    assert POD[edit.start : edit.end] == "3"
    assert reading.values["micro_batch_size"].where.startswith("pod.yaml:8 ")


def test_a_job_without_training(tmp_path: Path) -> None:
    service = tmp_path / "service.yaml"
    service.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    with pytest.raises(InputError, match="must be a configuration"):
        read(service)
    bomb = "a: &a [x]\n" + "".join(
        f"{chr(98 + at)}: &{chr(98 + at)} [*{chr(97 + at)}, *{chr(97 + at)}]\n" for at in range(24)
    )
    service.write_text(f"apiVersion: v1\nkind: Job\n{bomb}")
    with pytest.raises(InputError):
        read(service)
