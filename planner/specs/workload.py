"""What is trained: all weights or some, adapters beside frozen ones (LoRA), by which optimizer, on
whole or short samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import PositiveInt, field_validator

from planner.errors import InputError, unknown
from planner.specs.documents import FrozenDocument
from planner.specs.model import ModelSpec

OPTIMIZER_ALIASES = {
    "adamw": "adam",
    "dist_muon": "muon",
    "precision-aware-bf16": "precision-aware",
}
Optimizer = Literal[
    "adam",
    "precision-aware",
    "precision-aware-fp32",
    "precision-aware-fp8",
    "adam-8bit",
    "adafactor",
    "muon",
    "lion",
    "sgd",
]
OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)
FROZEN = ("embedding", "attention", "mlp", "norms", "head", "vision")
"""Parts of a model whose weights can be frozen; mlp: experts, shared experts and router too;
vision: the tower and its projector.
"""
Frozen = Literal["embedding", "attention", "mlp", "norms", "head", "vision"]
TARGETS = ("qkv", "proj", "fc1", "fc2")
"""Linears as Megatron has them, query, key and value (and both branches of a gated MLP) in one: one
adapter for them all.
"""
APART = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Linears as Hugging Face has them, an adapter each."""
Target = Literal[
    "qkv",
    "proj",
    "fc1",
    "fc2",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
]
TARGET_ALIASES = {
    "linear_qkv": "qkv",
    "attention_qkv": "qkv",
    "linear_proj": "proj",
    "attention_dense": "proj",
    "linear_fc1": "fc1",
    "linear_fc2": "fc2",
    "mlp_fc1": "fc1",
    "mlp_fc2": "fc2",
}
SAME = {"o_proj": "proj", "down_proj": "fc2"}
ELSEWHERE = {name: own for own, name in SAME.items()}
"""Megatron's names of single linears as Hugging Face's."""
JOINED = ("qkv", "fc1")
_PARTS = {"qkv": ("q_proj", "k_proj", "v_proj"), "fc1": ("gate_proj", "up_proj")}
MAX_RANK = 4096
BASES = ("16bit", "nf4")


class Lora(FrozenDocument):
    """Low-rank adapters (LoRA, QLoRA): every target linear is frozen, and two matrices beside it
    are trained, of shapes [rank, inputs] and [outputs, rank].
    """

    rank: PositiveInt
    targets: tuple[Target, ...] = TARGETS  # type: ignore[assignment]
    base: Literal["16bit", "nf4"] = "16bit"
    """How the frozen linears of the layers are kept: nf4 is QLoRA's 4 bits with doubly quantized
    scales, turned to 16 bits where used.
    """

    @field_validator("targets")
    @classmethod
    def _one_name(cls, names: tuple[Target, ...]) -> tuple[Target, ...]:
        """Hugging Face names of single linears as Megatron's: o_proj is proj, down_proj is fc2."""
        return tuple(dict.fromkeys(SAME.get(name, name) for name in names))  # type: ignore[misc]


def optimizer(name: str | None) -> str:
    """The optimizer's own name; Adam when none is stated. InputError for an unknown one, with the
    nearest.
    """
    if name is None:
        return "adam"
    plain = name.strip().lower()
    plain = OPTIMIZER_ALIASES.get(plain, plain)
    if plain not in OPTIMIZERS:
        raise unknown("optimizer", name, (*OPTIMIZERS, *OPTIMIZER_ALIASES))
    return plain


def frozen(names: Sequence[str] | None, tower: bool = False) -> tuple[str, ...]:
    """Frozen parts in one order; InputError for an unknown one, or when nothing is left to
    train. tower: whether there is a vision tower.
    """
    for name in names or ():
        if name not in FROZEN:
            raise unknown("a part to freeze", name, FROZEN)
    parts = tuple(part for part in FROZEN if part in (names or ()))
    if "vision" in parts and not tower:
        raise InputError(
            "frozen vision must go with a vision tower, but got no images; add --images-per-sample"
            " to a model that has one, or leave vision out"
        )
    if len(parts) == len(FROZEN) - (not tower):
        raise InputError(
            "something must be trained, but all parts are frozen; leave one out, or train adapters"
            " with --lora-rank"
        )
    return parts


def lora(
    rank: int | None,
    targets: Sequence[str] | None,
    model: ModelSpec,
    framework: str,
    frozen_parts: Sequence[str],
    base: str | None = None,
) -> Lora | None:
    """The adapters; all linears unless targets say otherwise: as Megatron has them, or as Hugging
    Face does for the other frameworks.

    Raises InputError where words contradict one another or the model has no such linear.
    """
    if base is not None and base not in BASES:
        raise unknown("lora_base", base, BASES)
    if rank is None:
        if targets or base:
            word = "lora_targets" if targets else "lora_base"
            raise InputError(
                f"{word} must go with lora_rank, but got {', '.join(targets or (str(base),))}"
                " alone; add --lora-rank 16"
            )
        return None
    if frozen_parts:
        raise InputError(
            "with lora_rank all but the adapters is frozen, but got frozen"
            f" {', '.join(frozen_parts)} too; leave it out"
        )
    if not 1 <= rank <= min(MAX_RANK, model.hidden_size):
        most = min(MAX_RANK, model.hidden_size)
        raise InputError(
            f"lora_rank must be from 1 to {most:,} for {model.name}, but got {rank:,}; 8 to 64 are"
            " usual"
        )
    usual = (
        TARGETS
        if framework == "megatron" or model.mla
        else tuple(name for name in APART if model.gated_mlp or name != "gate_proj")
    )
    chosen = _targets(targets or usual, model)
    return Lora(rank=rank, targets=chosen, base=base or "16bit")  # type: ignore[arg-type]


def _targets(names: Sequence[str], model: ModelSpec) -> tuple[str, ...]:
    known = (*TARGETS, *APART)
    targets: list[str] = []
    for name in names:
        plain = TARGET_ALIASES.get(name.lower(), name.lower())
        if plain not in known:
            raise unknown("a LoRA target", name, (*known, *TARGET_ALIASES))
        if plain == "gate_proj" and not model.gated_mlp:
            raise InputError(
                f"lora_targets must be linears of the model, but {model.name} has no gate_proj; try"
                " up_proj"
            )
        if model.mla and plain in _PARTS["qkv"]:
            raise InputError(
                "lora_targets of latent attention must be qkv (all of its projections) or proj,"
                f" but got {name}; try qkv"
            )
        targets.append(SAME.get(plain, plain))
    for linear, parts in _PARTS.items():
        both = [part for part in parts if part in targets]
        if linear in targets and both:
            raise InputError(
                f"a linear must have one adapter, but lora_targets name {linear} and its part"
                f" {both[0]}; leave one out"
            )
    return tuple(dict.fromkeys(targets))
