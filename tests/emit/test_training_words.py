"""What a training script of one's own must do is read back from the launch file that says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.errors import InputError

ONE = {"tp": 1, "pp": 1, "mbs": 1}
"""One layout or a few: the search is not what is tested."""
ADAPTERS = {"lora_rank": 16, "lora_base": "nf4", "mean_length": 1000, "packing": True}
FROZEN = {"frozen": ["embedding", "norms"], "mean_length": 500}
IMAGES = {"model": "qwen3-vl-8b", "images_per_sample": 2, "image_size": 448}
CASES = [
    ("megatron", None, ADAPTERS | {"lora_base": None, "lora_targets": ["qkv", "fc2"]}, {}),
    ("deepspeed", None, FROZEN, {"pp": 2}),
    ("deepspeed", None, {"optimizer": "adam-8bit"}, {}),
    ("deepspeed", "accelerate", ADAPTERS, {}),
    ("torch", "accelerate", FROZEN, {}),
    ("torch", "accelerate", {"precision": "fp32"}, {}),
    ("megatron", None, IMAGES | {"frozen": ["vision"]}, {"pp": 2}),
    ("deepspeed", None, IMAGES, {}),
    ("torch", "accelerate", {"model": "gemma4-31b", "images_per_sample": 1}, {}),
]


@pytest.mark.parametrize(("framework", "form", "words", "sizes"), CASES)
def test_launch_files_say_what_the_script_must_do(framework, form, words, sizes, tmp_path: Path):
    """The same seconds and bytes: nothing that was planned is lost on the way."""
    script = tmp_path / "own.py"
    script.touch()
    asked = {**ONE, **sizes, **{name: word for name, word in words.items() if word is not None}}
    asked = {"model": "llama3-8b", "gpus": 64, "cluster": "h100-sxm", **asked}
    question = api.question(framework=framework, **asked)
    own = None if form else str(script)
    plan = api.recommend(question, top=1, out=tmp_path / "out", format=form, script=own)
    assert plan.best is not None
    launch = next(name for name in plan.files if Path(name).name.startswith("launch"))
    checked = api.check(launch, cluster="h100-sxm")
    assert checked.estimate is not None
    assert checked.launch.layout == plan.best.layout
    assert checked.estimate.step_s == pytest.approx(plan.best.estimate.step_s, rel=1e-9)
    assert checked.estimate.memory_bytes == pytest.approx(plan.best.estimate.memory_bytes, rel=1e-9)
    trained = ("lora", "frozen", "packing", "mean_length", "optimizer", "attention")
    for name in (*trained, "images_per_sample", "image_size", "tower"):
        assert getattr(checked.launch.recipe, name) == getattr(plan.recipe, name), name


def test_images_are_restated_and_the_tower_frozen_as_the_file_says(tmp_path: Path):
    """LLaMA-Factory's words; 262,144 pixels are 512 x 512, 16 x 16 tokens of 32 pixels."""
    stated = {
        "model_name_or_path": "Qwen/Qwen3-VL-8B-Instruct",
        "finetuning_type": "full",
        "freeze_vision_tower": True,
        "image_max_pixels": 262144,
        "cutoff_len": 4096,
        "deepspeed": "ds.json",
        "per_device_train_batch_size": 1,
    }
    file = tmp_path / "sft.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in stated.items()))
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    text = api.check(str(file), cluster="h100-sxm", gpus=8)
    assert text.launch.recipe.tower is None
    assert any("where images_per_sample is stated" in says for says in text.launch.assumed)
    seen = api.check(str(file), cluster="h100-sxm", gpus=8, set=["images_per_sample=2"])
    assert (seen.launch.recipe.frozen, seen.launch.recipe.image_size) == (("vision",), 512)
    assert any("1,024 patches, 256 tokens" in says for says in seen.launch.assumed)
    assert text.estimate is not None and seen.estimate is not None
    assert seen.estimate.step_s > text.estimate.step_s


def test_words_that_no_plan_writes_are_refused(tmp_path: Path):
    """A variable that is no number is named, with what was got."""
    text = (
        "export PLAN_LORA_RANK=wide\n"
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512"
        " --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 --global-batch-size 8\n"
    )
    launch = tmp_path / "launch.sh"
    launch.write_text(text)
    with pytest.raises(InputError, match="PLAN_LORA_RANK"):
        api.check(launch, cluster="h100-sxm")
