"""What the name of a NeMo 2 or Megatron-Bridge recipe tells: `llama3_70b`,
`deepseek_v3_pretrain_256gpu_gb200_fp8mx_config`.
"""

from __future__ import annotations

import re

from planner.intake.documents.tree import Leaf
from planner.intake.frameworks.vocabulary import Named

FLAGS = ("--recipe", "--factory", "--model_recipe_name", "-mr")
KEYS = ("recipe", "factory")
SPELLED = {"recipe": "recipe", "factory": "factory", "model_recipe_name": "recipe", "mr": "recipe"}
"""The flags as words of a script's command line."""
_ARGUMENTS = re.compile(r"\b(num_nodes|num_gpus_per_node)\s*=\s*(\d{1,7})")
_TASK = re.compile(
    r"(?P<model>\w+?)_(?P<task>pretrain|sft|peft|lora|dora|finetune)(?P<rest>_\w*)?$"
)
_REST = re.compile(
    r"(?:_(?P<gpus>\d{1,6})gpus?)?(?:_(?P<gpu>h100|h200|b200|b300|gb200|gb300|a100|l40s?|vr200))?"
    r"(?:_(?P<kind>bf16|fp8cs|fp8mx|fp8sc|fp8|nvfp4))?(?:_|$)"
)
_LENGTH = re.compile(r"_(\d+)k$")
_POINT = re.compile(r"^(llama|qwen|glm)(\d)(\d)(?=_)")
RECIPES = {"fp8cs": "tensorwise", "fp8mx": "mxfp8", "fp8sc": "blockwise", "fp8": "tensorwise"}
"""The suffixes of precision: current scaling, MX, scaling by sub-channel. Source: [megatron-bridge]
training/mixed_precision.py.
"""


def stated(leaf: Leaf) -> list[Named]:
    """Model, GPUs, GPU and precision, as far as the name tells; what else the recipe sets is in its
    code.
    """
    text = str(leaf.value)[:300].strip().strip("\"'")
    call = text.partition("(")
    name = (
        call[0].strip().rsplit(".", 1)[-1].lower().removesuffix("_config").removesuffix("_recipe")
    )
    arguments = {key: int(count) for key, count in _ARGUMENTS.findall(call[2])}
    match = _TASK.fullmatch(name)
    bare = match["model"] if match else name
    length = _LENGTH.search(bare)
    out = [Named("model", leaf, model(_LENGTH.sub("", bare)))]
    out += [Named("seq_length", leaf, int(length[1]) * 1024)] if length else []
    for key, to in (("num_nodes", "launch.nodes"), ("num_gpus_per_node", "launch.gpus_per_node")):
        out += [Named(to, leaf, arguments[key])] if key in arguments else []
    if match and match["task"] in ("peft", "lora", "dora"):
        out.append(Named("peft", leaf, "lora"))
    return out + _rest(match["rest"] or "", leaf) if match else out


def model(name: str) -> str:
    """The name as presets have it: `llama31_8b` is llama3.1_8b."""
    return _POINT.sub(r"\1\2.\3", name)


def _rest(text: str, leaf: Leaf) -> list[Named]:
    match = _REST.match(text)
    if match is None:
        return []
    out = [Named("launch.gpus", leaf, int(match["gpus"]))] if match["gpus"] else []
    out += [Named("launch.hardware", leaf, match["gpu"])] if match["gpu"] else []
    kind = match["kind"]
    if kind is None:
        return out
    out.append(Named("bf16", leaf, True))
    if kind in RECIPES:
        out += [Named("fp8_format", leaf, "hybrid"), Named("fp8_recipe", leaf, RECIPES[kind])]
    return out + ([Named("fp4_format", leaf, "e2m1")] if kind == "nvfp4" else [])
