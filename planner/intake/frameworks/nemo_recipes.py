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


def names(leaf: Leaf) -> list[Named]:
    """Model, GPUs, GPU and precision, as far as the name tells; what else the recipe sets is in its
    code.
    """
    text = str(leaf.value)[:300].strip().strip("\"'")
    function, _, arguments = text.partition("(")
    name = function.strip().rsplit(".", 1)[-1].lower()
    name = name.removesuffix("_config").removesuffix("_recipe")
    counts = dict(_ARGUMENTS.findall(arguments))
    match = _TASK.fullmatch(name)
    bare = match["model"] if match else name
    length = _LENGTH.search(bare)
    out = [Named("model", leaf, model(_LENGTH.sub("", bare)))]
    if length:
        out.append(Named("seq_length", leaf, int(length[1]) * 1024))
    for key, to in (("num_nodes", "launch.nodes"), ("num_gpus_per_node", "launch.gpus_per_node")):
        if key in counts:
            out.append(Named(to, leaf, int(counts[key])))
    if match and match["task"] in ("peft", "lora", "dora"):
        out.append(Named("peft", leaf, "lora"))
    if match:
        out += _rest(match["rest"] or "", leaf)
    return out


def model(name: str) -> str:
    """The name as presets have it: `llama31_8b` is llama3.1_8b."""
    return _POINT.sub(r"\1\2.\3", name)


def _rest(text: str, leaf: Leaf) -> list[Named]:
    match = _REST.match(text)
    out: list[Named] = []
    if match is None:
        return out
    if match["gpus"]:
        out.append(Named("launch.gpus", leaf, int(match["gpus"])))
    if match["gpu"]:
        out.append(Named("launch.hardware", leaf, match["gpu"]))
    kind = match["kind"]
    if kind:
        out.append(Named("bf16", leaf, True))
    if kind in RECIPES:
        out += [Named("fp8_format", leaf, "hybrid"), Named("fp8_recipe", leaf, RECIPES[kind])]
    if kind == "nvfp4":
        out.append(Named("fp4_format", leaf, "e2m1"))
    return out
