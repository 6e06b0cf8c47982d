"""The words of a question about what is trained, resolved: adapters, frozen parts, optimizer,
samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.specs import workload
from planner.specs.megatron import MOMENTS, NARROW, WHOLE_STATES
from planner.specs.model import ModelSpec
from planner.specs.software import Software
from planner.specs.switches.switch import Value
from planner.specs.switches.table import parse, shown, with_switches
from planner.specs.words import Question

BITS = {"16bit": "16", "nf4": "4"}
IMAGE_SIZE = 1024
"""Pixels of an image's edge where the tower takes any and none is stated."""


@dataclass(frozen=True, slots=True)
class Trained:
    words: dict[str, Any]
    """Fields of the Recipe: model and stack as they are trained, optimizer, lora, frozen, packing,
    mean_length.
    """
    assumed: tuple[str, ...]


def trained(question: Question, model: ModelSpec, software: Software, seq_length: int) -> Trained:
    """What the question says of the training itself. InputError where words contradict one
    another.
    """
    fields, assumed = words(question, model, software.framework, seq_length)
    own = _software(question, software, fields["optimizer"])
    return Trained({"model": model, "software": own} | fields, assumed)


def words(
    question: Question, model: ModelSpec, framework: str, seq_length: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields that are no document's, the model where less of it is trained, and what was
    assumed.
    """
    images, seen = _images(question, model, seq_length)
    frozen = _frozen(question, model)
    lora = workload.lora(
        question.lora_rank, question.lora_targets, model, framework, frozen, question.lora_base
    )
    assumed = _lora_said(question, lora) if lora else ()
    fields: dict[str, Any] = {"optimizer": workload.optimizer(question.optimizer)}
    if (lora or frozen) and model.mtp_layers:
        fields["model"] = model.model_copy(update={"mtp_layers": 0})
        assumed = (
            *assumed,
            (
                "multi-token prediction: left out, as fine-tuning with frozen weights does not"
                " train it"
            ),
        )
    packing, length = _samples(question, seq_length)
    fields |= {"lora": lora, "frozen": frozen, "packing": packing, "mean_length": length} | images
    return fields, (*assumed, *_samples_said(packing, length, seq_length), *seen)


def _frozen(question: Question, model: ModelSpec) -> tuple[str, ...]:
    parts = workload.frozen(question.frozen, tower=question.images_per_sample is not None)
    if model.tied_embeddings and ("embedding" in parts) != ("head" in parts):
        raise InputError(
            f"embedding and head of {model.name} are one table: freeze both or none, but got frozen"
            f" {', '.join(parts)}"
        )
    return parts


def _images(
    question: Question, model: ModelSpec, seq_length: int
) -> tuple[dict[str, int | None], tuple[str, ...]]:
    """What the vision tower sees, and what is to be said of it; nothing of text alone."""
    count, size, tower = question.images_per_sample, question.image_size, model.vision
    if count is None:
        if size is not None:
            raise InputError(
                "image_size must go with images_per_sample, but got none; add --images-per-sample N"
            )
        return {}, ()
    if count < 0:
        raise InputError(f"images_per_sample must be 0 or more, but got {count:,}; try 1")
    if tower is None:
        raise InputError(
            f"images_per_sample needs a vision tower that is read, but {model.name} has none; leave"
            " it out, or name the config.json of a Qwen-VL, Qwen3.5, Gemma 3 or 4, Mistral 3 or"
            " Llama 4"
        )
    if tower.patches_per_image and size is not None:
        raise InputError(
            f"image_size must be left out for {model.name}, whose tower sees"
            f" {tower.patches_per_image:,} patches of every image, but got {size:,}"
        )
    size = None if tower.patches_per_image else size or IMAGE_SIZE
    patches, tokens = tower.patches(size or 0), tower.tokens(size or 0)
    sample = question.mean_length or seq_length
    if count * tokens > sample:
        raise InputError(
            f"images of a sample must fit it, but got {count:,} images of {tokens:,} tokens in"
            f" {sample:,}; try --images-per-sample {sample // tokens}"
        )
    edge = f" of {size:,} x {size:,} pixels" if size else ""
    says = (
        f"vision: a tower in front on the first stage, whole on each rank of tp and cp, in 16 bits;"
        f" images{edge} are {patches:,} patches, {tokens:,} tokens of the sequence each"
    )
    return {"images_per_sample": count, "image_size": size}, (says,)


def _lora_said(question: Question, lora: workload.Lora) -> tuple[str, ...]:
    targets = () if question.lora_targets else (f"lora_targets: {', '.join(lora.targets)}",)
    return (
        *targets,
        (
            f"LoRA: frozen weights in {BITS[lora.base]} bits, adapters in 16 bits with 32-bit"
            " states, no dropout before them"
        ),
    )


def _software(question: Question, software: Software, name: str) -> Software:
    """The precision-aware optimizer is Adam with narrower states: switches of the software."""
    software = with_named_states(software)
    if name not in NARROW:
        return software
    if software.states.optimizer_state_bytes != WHOLE_STATES or software.framework != "megatron":
        raise InputError(
            f"optimizer {name} is Megatron-LM's, whose states are else {WHOLE_STATES:g} bytes a"
            f" parameter, but got stack {software.name}; try optimizer adam"
        )
    meant = precise(NARROW[name])
    for switch, value in parse(question.switch, software.framework).items():
        if meant.get(switch, value) != value:
            raise InputError(
                f"switch {switch} must be {shown(meant[switch])} with optimizer {name}, but got"
                f" {shown(value)}; leave one out"
            )
    return with_switches(software, meant)


def precise(moments: str) -> dict[str, Value]:
    """The precision-aware optimizer with moments of one type."""
    return {
        "use_precision_aware_optimizer": True,
        "exp_avg_dtype": moments,
        "exp_avg_sq_dtype": moments,
    }


def with_named_states(software: Software) -> Software:
    """A document that states the bytes of the precision-aware optimizer alone, with its
    switches.
    """
    moments = MOMENTS.get(software.states.optimizer_state_bytes)
    named = "use_precision_aware_optimizer" in software.switches
    if software.framework != "megatron" or moments is None or named:
        return software
    whole = software.with_figures({"states.optimizer_state_bytes": WHOLE_STATES})
    traffic = {"traffic.optimizer_bytes": software.traffic.optimizer_bytes}
    return with_switches(whole, precise(moments)).with_figures(traffic)


def _samples(question: Question, seq_length: int) -> tuple[bool | None, int | None]:
    """A mean length alone means padding; packing needs a mean length."""
    if question.mean_length is None:
        if question.packing is not None:
            raise InputError(
                "packing must go with the mean tokens of a sample, but got none; add"
                " --mean-length N"
            )
        return None, None
    if question.mean_length > seq_length:
        raise InputError(
            f"mean_length must be at most seq_length, but got {question.mean_length:,} and"
            f" {seq_length:,}"
        )
    return bool(question.packing), question.mean_length


def _samples_said(packing: bool | None, length: int | None, seq_length: int) -> tuple[str, ...]:
    if length is None:
        return ()
    if packing:
        return (
            (
                f"packing: {seq_length / length:.1f} samples of {length:,} tokens fill a sequence"
                f" of {seq_length:,}; all of one length, each attends to itself alone"
            ),
        )
    return (
        (
            f"padding: a sample of {length:,} tokens fills {length / seq_length:.0%} of a sequence"
            f" of {seq_length:,}, the rest is computed for nothing"
        ),
    )
