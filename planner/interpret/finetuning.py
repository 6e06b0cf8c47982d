"""What is trained, as a file states it: all weights or adapters, by which optimizer, on packed
samples or not.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.intake.reading import Reading, Unresolved
from planner.interpret.numbers import whole_number
from planner.specs import tuning, workload
from planner.specs.documents import build, parse_yaml
from planner.specs.model import ModelSpec, Vision
from planner.specs.words import Question

OPTIMIZERS = {
    "adamw_bnb_8bit": "adam-8bit",
    "adamw_8bit": "adam-8bit",
    "paged_adamw_8bit": "adam-8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "muon": "muon",
    "dist_muon": "muon",
    "lion": "lion",
    "lion_32bit": "lion",
}
"""Names of Hugging Face's --optim and Megatron's --optimizer that keep other states than Adam; all
others count as Adam.
"""
KINDS = (
    "hf.finetuning_type",
    "hf.train_type",
    "hf.tuner_type",
    "hf.adapter",
    "hf.peft_type",
    "peft.peft_scheme",
    "peft",
    "hf.peft",
)
RANKS = (
    "hf.lora_rank",
    "hf.lora_r",
    "hf.r",
    "peft.dim",
    "peft.lora_tuning.adapter_dim",
    "lora_rank",
    "lora_r",
)
TARGETS = (
    "hf.lora_target",
    "hf.target_modules",
    "hf.lora_target_modules",
    "peft.target_modules",
    "peft.lora_tuning.target_modules",
)
ALL = ("all", "all-linear", "all_linear")
USUAL_RANK = 8
PACKED = ("nemo", "bridge")
"""Whose packed samples are one sequence a micro-batch; ms-swift and the Trainer join those of a
micro-batch.
"""
QUANTIZED = ("hf.quantization_bit", "hf.load_in_4bit", "hf.load_in_8bit", "hf.quant_bits")

FROZEN_TOWER = ("hf.freeze_vision_tower", "hf.freeze_vit", "model.freeze_vision_model")
"""Words of LLaMA-Factory, ms-swift and Megatron-Bridge for a tower that is not trained."""
MOST_PIXELS = "hf.image_max_pixels"
"""To which LLaMA-Factory shrinks an image."""


class Trained(NamedTuple):
    """Fields of Recipe, and what remained open."""

    fields: dict[str, Any]
    open: tuple[Unresolved, ...] = ()
    says: str = ""


def trained(
    plain: dict[str, Any], reading: Reading, spec: ModelSpec | None, seq_length: int
) -> Trained:
    """LoRA, optimizer and packing; words that the cost model does not know are said and left
    out. What a launch file of a plan tells its script in variables is taken first.
    """
    planned = _planned(plain, reading, spec, seq_length)
    stated = _stated(plain, reading, spec)
    says = "; ".join(filter(None, (planned.says, "" if "lora" in planned.fields else stated.says)))
    return Trained(stated.fields | planned.fields, stated.open, says)


def _planned(
    plain: dict[str, Any], reading: Reading, spec: ModelSpec | None, seq_length: int
) -> Trained:
    """What emit/training.py wrote: PLAN_LORA_RANK and its like; images may be restated."""

    def word(name: str) -> str | None:
        value = plain.get(f"env.PLAN_{name}")
        return None if value is None else str(value)[:200]

    def number(name: str) -> int | None:
        return whole_number(plain, f"env.PLAN_{name}") if word(name) else None

    def several(name: str) -> tuple[str, ...] | None:
        text = word(name)
        return tuple(text.split(",")) if text else None

    def images(name: str) -> int | None:
        return whole_number(plain, name) if name in plain else number(name.upper())

    count, size, frozen = images("images_per_sample"), images("image_size"), several("FROZEN")
    if count is not None and any(plain.get(name) is True for name in FROZEN_TOWER):
        frozen = tuple(dict.fromkeys((*(frozen or ()), "vision")))
    if count is not None and spec and spec.vision and not spec.vision.patches_per_image:
        size = size or isqrt(max(whole_number(plain, MOST_PIXELS, 0), 0)) or None
    rank, length = number("LORA_RANK"), number("MEAN_LENGTH")
    asked = Question(
        model="",
        lora_rank=rank,
        lora_targets=several("LORA_TARGETS") if rank else None,
        lora_base=word("LORA_BASE") if rank else None,
        frozen=frozen,
        mean_length=length,
        packing=word("PACKING") == "1" if length else None,
        images_per_sample=count,
        image_size=size,
        optimizer=word("OPTIMIZER"),
    )
    if spec is None or asked == Question(model=""):
        return Trained({})
    if asked.images_per_sample is not None and spec.vision is None and plain.get("env.PLAN_VISION"):
        spec = spec.model_copy(update={"vision": _tower(plain["env.PLAN_VISION"])})
    fields, assumed = tuning.words(asked, spec, reading.framework, seq_length)
    if asked.optimizer is None:
        del fields["optimizer"]
    named = {"model": spec} | fields if asked.images_per_sample is not None else fields
    named = {name: value for name, value in named.items() if value not in (None, ())}
    return Trained(named, says="; ".join(assumed))


def _tower(stated: object) -> Vision:
    """The tower in front of a model that a framework's flags describe: `num_layers=27,...`."""
    pairs = (pair.partition("=") for pair in str(stated)[:2000].split(","))
    sizes = {name: parse_yaml(value) for name, _, value in pairs}
    if "full_layers" in sizes:
        layers = str(sizes["full_layers"]).split("+")
        sizes["full_layers"] = tuple(int(layer) for layer in layers if layer.isdigit())
    return build(Vision, sizes, "PLAN_VISION")


def _stated(plain: dict[str, Any], reading: Reading, spec: ModelSpec | None) -> Trained:
    """What the framework's own words say."""
    name = str(
        plain.get("hf.optim")
        or plain.get("optimizer")
        or plain.get("deepspeed.optimizer.type")
        or ""
    ).lower()
    fields: dict[str, Any] = {"optimizer": OPTIMIZERS.get(name, "adam")}
    if plain.get("packing") and reading.kind in PACKED:
        fields["packing"] = True
    if not _adapters(plain) or spec is None:
        return Trained(fields)
    ranks = (whole_number(plain, name, 0) for name in RANKS)
    rank = next((rank for rank in ranks if rank > 0), USUAL_RANK)
    base = "nf4" if _four_bits(plain) else None
    try:
        adapters = workload.lora(rank, _targets(plain), spec, reading.framework, (), base)
    except InputError:
        adapters = workload.lora(
            min(rank, spec.hidden_size), None, spec, reading.framework, (), base
        )
    fields["lora"] = adapters
    says = f"adapters of rank {rank}; all other weights are frozen"
    bits = [name for name in QUANTIZED if plain.get(name)]
    if base or not bits:
        return Trained(fields, says=says)
    why = "weights in 8 bits are counted as 16: memory is less than told"
    return Trained(fields, (Unresolved(bits[0], why, reading.file),), f"{says}; {why}")


def _four_bits(plain: dict[str, Any]) -> bool:
    """QLoRA: frozen weights in 4 bits."""
    counts = [
        whole_number(plain, name, 0)
        for name in ("hf.quantization_bit", "hf.quant_bits")
        if plain.get(name) not in (None, True, False)
    ]
    return plain.get("hf.load_in_4bit") is True or 4 in counts


def _adapters(plain: dict[str, Any]) -> bool:
    """Whether adapters are trained; a rank alone means so where no kind is stated."""
    kinds = {str(plain.get(kind) or "").lower() for kind in KINDS} - {""}
    if kinds & {"lora", "qlora", "dora"} or plain.get("hf.use_peft") is True:
        return True
    return not kinds and any(plain.get(name) for name in RANKS[:3])


def _targets(plain: dict[str, Any]) -> list[str] | None:
    """Linears that get adapters; None for all."""
    targets = next((plain[name] for name in TARGETS if plain.get(name)), "all")
    if not isinstance(targets, list):
        targets = str(targets).replace(",", " ").split()
    names = list(map(str, targets))
    return None if set(names) & set(ALL) else names
