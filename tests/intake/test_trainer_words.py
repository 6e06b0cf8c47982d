"""Words of programs around the Trainer: presets of DeepSpeed by name, what is on unless told
otherwise, DeepSpeed-Chat, 4 bits, Liger.

Facts: swift/config/*.json and trainers/arguments.py of ms-swift, deepspeed_configs of axolotl,
hparams of LLaMA-Factory, dschat's ds_utils.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.advice.findings import Checked
from planner.layout import OFFLOADS

STAGE = "deepspeed.zero_optimization.stage"


def answer(tmp_path: Path, command: str, name: str = "run.sh") -> Checked:
    path = tmp_path / name
    path.write_text(command)
    return api.check(path, cluster="h100-sxm")


SWIFT = (
    "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --tuner_type full"
    " --per_device_train_batch_size 1 --max_length 8192 "
)


@pytest.mark.parametrize(
    ("preset", "stage", "offload"),
    [
        ("zero1", 1, "none"),
        ("zero2", 2, "none"),
        ("zero3", 3, "none"),
        ("zero2_offload", 2, "optimizer-cpu"),
        ("zero3_offload", 3, "params-cpu"),
        ("examples/deepspeed/ds_z3_offload_config.json", 3, "params-cpu"),
        ("examples/deepspeed/ds_z2_config.json", 2, "none"),
        ("deepspeed_configs/zero3_bf16.json", 3, "none"),
        ("deepspeed_configs/zero3_bf16_cpuoffload_all.json", 3, "params-cpu"),
    ],
)
def test_presets_by_name(tmp_path: Path, preset: str, stage: int, offload: str) -> None:
    got = answer(tmp_path, SWIFT + f"--deepspeed {preset}\n")
    assert (got.launch.layout.zero, OFFLOADS[got.launch.layout.offload]) == (stage, offload)
    assert got.recipe.framework == "deepspeed" and got.recipe.precision == "bf16"


def test_a_file_that_is_there_wins_over_its_name(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(
        '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
    )
    assert answer(tmp_path, SWIFT + "--deepspeed zero3.json\n").launch.layout.zero == 1


def test_swift_checkpoints_activations_unless_told(tmp_path: Path) -> None:
    assert answer(tmp_path, SWIFT).launch.layout.recompute == 2
    assert answer(tmp_path, SWIFT + "--gradient_checkpointing false").launch.layout.recompute == 0
    trainer = (
        "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf"
        " --per_device_train_batch_size 1 --bf16 "
    )
    assert answer(tmp_path, trainer).launch.layout.recompute == 0


def test_swift_trains_in_the_type_of_the_weights(tmp_path: Path) -> None:
    assert answer(tmp_path, SWIFT + "--torch_dtype float32").recipe.precision == "fp32"
    assert answer(tmp_path, SWIFT + "--torch_dtype bfloat16").recipe.precision == "bf16"


def test_liger_holds_no_logits(tmp_path: Path) -> None:
    plain, fused = (
        answer(tmp_path, SWIFT + "--deepspeed zero3 " + more).estimate
        for more in ("", "--use_liger_kernel true")
    )
    assert plain is not None and fused is not None
    gone = float(plain.memory.working_bytes) - float(fused.memory.working_bytes)
    assert gone > 8192 * 152_064 * 4  # at least one copy in fp32


def test_deepspeed_chat(tmp_path: Path) -> None:
    command = (
        "deepspeed --num_gpus 8 main.py --data_split 2,4,4 --model_name_or_path"
        " meta-llama/Llama-2-7b-hf --max_seq_len 512 --per_device_train_batch_size 4"
        " --gradient_checkpointing --deepspeed --zero_stage 3 --offload "
    )
    got = answer(tmp_path, command)
    assert (
        got.launch.layout.zero,
        OFFLOADS[got.launch.layout.offload],
        got.recipe.precision,
    ) == (3, "params-cpu", "fp16")
    assert answer(tmp_path, command + "--dtype bf16").recipe.precision == "bf16"
    lora = answer(tmp_path, command + "--lora_dim 128 --only_optimize_lora").recipe.lora
    assert (
        lora is not None
        and lora.rank == 128
        and answer(tmp_path, command + "--lora_dim 128").recipe.lora is None
    )


def test_four_bits_of_axolotl(tmp_path: Path) -> None:
    text = (
        "base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 2048\nmicro_batch_size:"
        " 1\ngradient_accumulation_steps: 4\nbf16: auto\nadapter: qlora\nlora_r: 32\nload_in_4bit:"
        " {}\n"
    )
    four, whole = (answer(tmp_path, text.format(one), f"{one}.yml") for one in ("true", "false"))
    assert (
        four.recipe.lora is not None
        and four.recipe.lora.base == "nf4"
        and whole.recipe.lora.base == "16bit"
    )  # type: ignore[union-attr]


def test_auto_of_the_trainer_disagrees_with_nothing(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    )
    text = (
        "base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 2048\nmicro_batch_size: 1\nbf16:"
        " auto\ndeepspeed: ds.json\n"
    )
    assert answer(tmp_path, text, "a.yml").verdict != "invalid"
