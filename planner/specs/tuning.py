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
    fields |= {"lora": lora, "frozen": frozen, "packing": packing, "mean_length": length}
    return fields, (*assumed, *_samples_said(packing, length, seq_length))


def _frozen(question: Question, model: ModelSpec) -> tuple[str, ...]:
    parts = workload.frozen(question.frozen)
    if model.tied_embeddings and ("embedding" in parts) != ("head" in parts):
        raise InputError(
            f"embedding and head of {model.name} are one table: freeze both or none, but got frozen"
            f" {', '.join(parts)}"
        )
    return parts


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
