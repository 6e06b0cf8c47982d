"""A DeepSpeed configuration, alone or with the Hugging Face arguments that fill its `auto`
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from planner.intake.documents.scalars import is_int
from planner.intake.documents.tree import Leaf
from planner.intake.frameworks import deepspeed_keys
from planner.intake.frameworks.vocabulary import Named, make_reading
from planner.intake.reading import Reading, Unresolved, Value

PREFIX = "deepspeed."
SECTIONS = (
    "zero_optimization",
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "fp16",
    "bf16",
    "gradient_accumulation_steps",
)
"""A mapping with one of these at its top is such a configuration."""


class Filled(NamedTuple):
    """The Trainer argument that fills a key, and its default in transformers' TrainingArguments."""

    argument: str
    default: Any


TRAINER = {
    "train_micro_batch_size_per_gpu": Filled("per_device_train_batch_size", 8),
    "gradient_accumulation_steps": Filled("gradient_accumulation_steps", 1),
    "gradient_clipping": Filled("max_grad_norm", 1.0),
    "optimizer.params.lr": Filled("learning_rate", 5e-5),
    "optimizer.params.eps": Filled("adam_epsilon", 1e-8),
    "optimizer.params.weight_decay": Filled("weight_decay", 0.0),
    "scheduler.params.warmup_max_lr": Filled("learning_rate", 5e-5),
    "fp16.enabled": Filled("fp16", False),
    "bf16.enabled": Filled("bf16", False),
}
"""Source: [hf-transformers] integrations/deepspeed.py, HfTrainerDeepSpeedConfig: `auto` takes the
argument, another value must equal it.
"""
COMPARED = ("per_device_train_batch_size", "gradient_accumulation_steps", "fp16", "bf16")
OWN = (
    "output_dir",
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)
"""Arguments of the Trainer: with one of these stated the others have their defaults; a launcher's
file alone tells nothing of them.
"""
BY_HIDDEN = {
    "zero_optimization.reduce_bucket_size": (1.0, 2),
    "zero_optimization.stage3_prefetch_bucket_size": (0.9, 2),
    "zero_optimization.stage3_param_persistence_threshold": (10.0, 1),
}
"""Factor and power of the hidden size. Source: the same file, trainer_config_finalize; the last two
with stage 3 alone.
"""


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """The configuration alone: each key under `deepspeed.`, `auto` kept as such and listed as
    unresolved where memory hangs on it.
    """
    keys = [
        Named(PREFIX + ".".join(leaf.path), leaf, leaf.value, deepspeed_keys.known(leaf.path))
        for leaf in leaves
    ]
    out = make_reading(file, "deepspeed", "deepspeed", keys, notes=notes)
    return _open(out)


def with_trainer(out: Reading, gpus: int | None = None) -> Reading:
    """`auto` filled by the `hf.` arguments of the same reading, as transformers does; values that
    contradict them are noted.

    The Trainer stops at a contradiction; `train_batch_size` is compared only where the GPU count is
    known.
    """
    values = dict(out.values)
    notes = list(out.notes)
    trainer = any(f"hf.{name}" in values for name in OWN)
    for key, (argument, default) in TRAINER.items():
        configured = values.get(PREFIX + key)
        if configured is None:
            continue
        taken = values.get(f"hf.{argument}") or Value(
            default, "default", f"transformers {argument}"
        )
        if configured.value == "auto":
            where = f"{configured.where} auto, {taken.where}"
            values[PREFIX + key] = Value(taken.value, taken.origin, where)
        elif (
            argument in COMPARED
            and configured.value != taken.value
            and (trainer or f"hf.{argument}" in values)
        ):
            notes.append(
                f"{key} {configured.value} in the DeepSpeed configuration, but {argument} is"
                f" {taken.value}: the Trainer stops there"
            )
    notes += _batch(values, gpus, trainer)
    _buckets(values)
    filled = replace(
        out,
        values=values,
        notes=tuple(notes),
        unresolved=tuple(question for question in out.unresolved if question.name not in values),
    )
    return _open(filled)


def _batch(values: dict[str, Value], gpus: int | None, trainer: bool) -> list[str]:
    """Fills the whole batch where it is auto; what the Trainer would stop at."""
    batch = values.get(PREFIX + "train_batch_size")
    if batch is None:
        return []
    each = _argument(values, "per_device_train_batch_size", 8)
    steps = _argument(values, "gradient_accumulation_steps", 1)
    if not (isinstance(each, int) and isinstance(steps, int)):
        return []
    if batch.value == "auto":
        del values[PREFIX + "train_batch_size"]
        if gpus:
            values[PREFIX + "train_batch_size"] = Value(
                gpus * each * steps, "default", f"{batch.where} auto: {gpus} x {each} x {steps}"
            )
    elif gpus and trainer and batch.value != gpus * each * steps:
        return [
            f"train_batch_size {batch.value} in the DeepSpeed configuration, but the arguments"
            f" give {gpus} x {each} x {steps} = {gpus * each * steps}: the Trainer stops there"
        ]
    return []


def _argument(values: Mapping[str, Value], name: str, default: int) -> Any:
    argument = values.get(f"hf.{name}")
    return argument.value if argument else default


def _buckets(values: dict[str, Value]) -> None:
    config = values.get("hf_config")
    if config is None or not isinstance(config.value, dict):
        return
    hidden = config.value.get("hidden_size")
    if not is_int(hidden):
        return
    for key, (factor, power) in BY_HIDDEN.items():
        bucket = values.get(PREFIX + key)
        if bucket and bucket.value == "auto":
            where = f"{bucket.where} auto: of hidden_size {hidden}"
            values[PREFIX + key] = Value(int(factor * hidden**power), "default", where)


def _open(out: Reading) -> Reading:
    """The reading with what is still `auto` as unresolved."""
    weighty = (
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "fp16.enabled",
        "bf16.enabled",
    )
    unresolved = {question.name: question for question in out.unresolved}
    for key in weighty:
        value = out.values.get(PREFIX + key)
        if value and value.value == "auto":
            argument = TRAINER[key].argument
            why = (
                f"auto: the Hugging Face argument {argument} fills it; --set hf.{argument}=VALUE"
                " supplies it"
            )
            unresolved[PREFIX + key] = Unresolved(PREFIX + key, why, value.where)
    return replace(out, unresolved=tuple(unresolved.values()))
