"""Readings made by hand: a command line without any shell, a DeepSpeed configuration as a
mapping.
"""

from __future__ import annotations

from typing import Any

from planner.intake.reading import Reading, Value

GPT = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096"
    " --max-position-embeddings 4096 --vocab-size 50304 "
)
LLAMA_70B = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64"
    " --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096"
    " --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --normalization RMSNorm"
    " --position-embedding-type rope --vocab-size 128256 "
)


def megatron(flags: str, gpus: int = 8, kind: str = "megatron", **more: Any) -> Reading:
    """Flags as written on a plain command line, and other values by name (`.` written as `__`)."""
    values: dict[str, Value] = {}
    for part in (" " + flags).split(" --")[1:]:
        name, *words = part.split()
        plain = [_plain(word) for word in words]
        values[name.replace("-", "_")] = Value(
            True if not plain else plain[0] if len(plain) == 1 else plain, "flag", f"--{name}"
        )
    if values.pop("disable_bias_linear", None):
        values["add_bias_linear"] = Value(False, "flag", "--disable-bias-linear")
    values["launch.gpus"] = Value(gpus, "flag", "torchrun")
    values |= {name.replace("__", "."): Value(value, "flag", name) for name, value in more.items()}
    return Reading("launch.sh", kind, "megatron", None, values)


def deepspeed(config: dict[str, Any], kind: str = "deepspeed", **more: Any) -> Reading:
    """A configuration with its keys flattened, and other values by name (`.` written as `__`)."""
    values = {name: Value(value, "flag", name) for name, value in _flat(config, "deepspeed")}
    values |= {name.replace("__", "."): Value(value, "flag", name) for name, value in more.items()}
    return Reading("ds.json", kind, "deepspeed", None, values)


def _flat(config: dict[str, Any], before: str) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for key, value in config.items():
        out += (
            _flat(value, f"{before}.{key}")
            if isinstance(value, dict)
            else [(f"{before}.{key}", value)]
        )
    return out


def _plain(word: str) -> Any:
    try:
        return int(word)
    except ValueError:
        return word
