"""What programs around the Hugging Face Trainer mean by words of their own, and by saying
nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from planner.intake.reading import Reading, Value

RECOMPUTING = {
    "hf.tuner_type": "ms-swift",
    "hf.train_type": "ms-swift",
    "hf.sft_type": "ms-swift",
    "hf.split_dataset_ratio": "ms-swift",
    "hf.finetuning_type": "LLaMA-Factory",
    "hf.cutoff_len": "LLaMA-Factory",
}
"""Arguments by which programs are known that checkpoint activations unless told otherwise. Source:
ms-swift trainers/arguments.py (gradient_checkpointing True), LLaMA-Factory hparams/model_args.py
(disable_gradient_checkpointing False)."""
CHAT = "hf.lora_module_name", "hf.only_optimize_lora", "hf.data_split"
"""Arguments of DeepSpeed-Chat, whose --zero_stage, --offload and --dtype make the configuration.
Source: its utils/ds_utils.py.
"""
_PRESET = re.compile(r"(?:ds_?)?(?:z|zero|stage)_?([0-3])(?![0-9])(.*)", re.IGNORECASE)
STAGE = "deepspeed.zero_optimization.stage"
OFFLOAD = "deepspeed.zero_optimization.offload_{}.device"


def meant(out: Reading) -> Reading:
    """The reading with what its program's own words and defaults mean."""
    if out.kind != "huggingface":
        return out
    more = _recomputing(out) | _swift(out) | _chat(out)
    return (
        replace(
            out,
            values={
                **out.values,
                **{name: one for name, one in more.items() if name not in out.values},
            },
        )
        if more
        else out
    )


def preset(name: str, where: str) -> dict[str, Value]:
    """What the name of a DeepSpeed configuration tells where the file is not at hand: `zero3`,
    `ds_z2_offload_config.json`.
    """
    match = _PRESET.match(PurePosixPath(name).stem)
    if match is None:
        return {}
    stage, rest = int(match[1]), match[2].lower()
    out: dict[str, Any] = {STAGE: stage}
    if "offload" in rest:
        both = stage == 3 and "opt" not in rest
        out |= {OFFLOAD.format("param"): "cpu"} if both else {}
        out |= {OFFLOAD.format("optimizer"): "cpu"} if "param" not in rest else {}
    out |= {"deepspeed.bf16.enabled": "auto", "deepspeed.fp16.enabled": "auto"}
    return {key: Value(value, "flag", where) for key, value in out.items()}


def _recomputing(out: Reading) -> dict[str, Value]:
    stated = ("hf.gradient_checkpointing", "hf.disable_gradient_checkpointing")
    program = next((RECOMPUTING[name] for name in RECOMPUTING if name in out.values), None)
    if program is None or any(name in out.values for name in stated):
        return {}
    return {
        "hf.gradient_checkpointing": Value(
            True, "default", f"{program} checkpoints activations unless told otherwise"
        )
    }


def _swift(out: Reading) -> dict[str, Value]:
    """ms-swift trains in the type that weights are loaded in, which is bf16 for today's models."""
    if not any(RECOMPUTING[name] == "ms-swift" and name in out.values for name in RECOMPUTING):
        return {}
    if any(name in out.values for name in ("hf.bf16", "hf.fp16")):
        return {}
    stated = out.values.get("hf.torch_dtype") or out.values.get("hf.dtype")
    kind = "bfloat16" if stated is None else str(stated.value)
    if kind not in ("bfloat16", "float16"):
        return {}
    name = "hf.bf16" if kind == "bfloat16" else "hf.fp16"
    return {
        name: (
            replace(stated, value=True)
            if stated
            else Value(True, "default", "ms-swift: the type of the weights")
        )
    }


def _chat(out: Reading) -> dict[str, Value]:
    stage = out.values.get("hf.zero_stage")
    if stage is None or not any(name in out.values for name in CHAT):
        return {}
    found = {STAGE: stage}
    offload = out.values.get("hf.offload")
    if offload is not None and offload.value:
        parts = ("optimizer", "param") if stage.value == 3 else ("optimizer",)
        found |= {OFFLOAD.format(part): replace(offload, value="cpu") for part in parts}
    dtype = out.values.get("hf.dtype")
    half = "bf16" if dtype is not None and str(dtype.value) == "bf16" else "fp16"
    found[f"deepspeed.{half}.enabled"] = Value(
        True, "flag" if dtype else "default", "DeepSpeed-Chat --dtype"
    )
    rank = out.values.get("hf.lora_dim")
    if rank is not None and rank.value and "hf.only_optimize_lora" in out.values:
        found |= {"hf.lora_rank": rank, "hf.use_peft": replace(rank, value=True)}
    return found
