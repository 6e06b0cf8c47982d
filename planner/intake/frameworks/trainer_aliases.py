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
CHAT = frozenset({"hf.lora_module_name", "hf.only_optimize_lora", "hf.data_split"})
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
    return filled(out, _recomputing(out) | _swift(out) | _chat(out))


def filled(out: Reading, values: dict[str, Value]) -> Reading:
    """The reading with values for what it does not state."""
    new = {name: value for name, value in values.items() if name not in out.values}
    return replace(out, values={**out.values, **new}) if new else out


def preset(name: str, where: str) -> dict[str, Value]:
    """What the name of a DeepSpeed configuration tells where the file is not at hand: `zero3`,
    `ds_z2_offload_config.json`.
    """
    match = _PRESET.match(PurePosixPath(name).stem)
    if match is None:
        return {}
    stage, rest = int(match[1]), match[2].lower()
    out: dict[str, Any] = {STAGE: stage}
    if "offload" in rest and stage == 3 and "opt" not in rest:
        out[OFFLOAD.format("param")] = "cpu"
    if "offload" in rest and "param" not in rest:
        out[OFFLOAD.format("optimizer")] = "cpu"
    out |= {"deepspeed.bf16.enabled": "auto", "deepspeed.fp16.enabled": "auto"}
    return {key: Value(value, "flag", where) for key, value in out.items()}


def _recomputing(out: Reading) -> dict[str, Value]:
    if out.values.keys() & {"hf.gradient_checkpointing", "hf.disable_gradient_checkpointing"}:
        return {}
    for name, program in RECOMPUTING.items():
        if name in out.values:
            where = f"{program} checkpoints activations unless told otherwise"
            return {"hf.gradient_checkpointing": Value(True, "default", where)}
    return {}


def _swift(out: Reading) -> dict[str, Value]:
    """ms-swift trains in the type that weights are loaded in, which is bf16 for today's models."""
    if not any(RECOMPUTING[name] == "ms-swift" and name in out.values for name in RECOMPUTING):
        return {}
    if out.values.keys() & {"hf.bf16", "hf.fp16"}:
        return {}
    weights = Value("bfloat16", "default", "ms-swift: the type of the weights")
    dtype = out.values.get("hf.torch_dtype") or out.values.get("hf.dtype") or weights
    name = {"bfloat16": "hf.bf16", "float16": "hf.fp16"}.get(str(dtype.value))
    return {name: replace(dtype, value=True)} if name else {}


def _chat(out: Reading) -> dict[str, Value]:
    stage = out.values.get("hf.zero_stage")
    if stage is None or not out.values.keys() & CHAT:
        return {}
    values = {STAGE: stage}
    offload = out.values.get("hf.offload")
    if offload is not None and offload.value:
        values[OFFLOAD.format("optimizer")] = replace(offload, value="cpu")
        if stage.value == 3:
            values[OFFLOAD.format("param")] = replace(offload, value="cpu")
    dtype = out.values.get("hf.dtype")
    half = "bf16" if dtype is not None and str(dtype.value) == "bf16" else "fp16"
    values[f"deepspeed.{half}.enabled"] = Value(
        True, "flag" if dtype else "default", "DeepSpeed-Chat --dtype"
    )
    rank = out.values.get("hf.lora_dim")
    if rank is not None and rank.value and "hf.only_optimize_lora" in out.values:
        values |= {"hf.lora_rank": rank, "hf.use_peft": replace(rank, value=True)}
    return values
