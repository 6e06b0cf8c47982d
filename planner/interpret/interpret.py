"""A reading understood: defaults filled in, and what it states as the Recipe and the Layout that
the cost model and the rules take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.errors import InputError
from planner.intake.frameworks.megatron_flags import Flag
from planner.intake.reading import Origin, Reading, Unresolved, Value
from planner.interpret import (
    architecture,
    defaults,
    finetuning,
    gpu_count,
    layout_knobs,
    megatron_kinds,
    software_choice,
)
from planner.interpret.megatron_model import expert_count
from planner.interpret.numbers import clean, whole_number
from planner.layout import Layout
from planner.rules.experts import idle_modules
from planner.specs.documents import parse_yaml
from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec
from planner.specs.named_software import TORCHTITAN, agreed, refuse_as, split
from planner.specs.recipe import Recipe
from planner.specs.resolve import operand
from planner.specs.software_versions import container_named, held_version, of_run
from planner.specs.switches.table import PLAIN
from planner.specs.versions import version_of

SEQUENCE = 2048
"""Tokens of a sample where a fine-tuning script does not say."""
LENGTHS = (
    "seq_length",
    "encoder_seq_length",
    "max_length",
    "hf.max_seq_length",
    "hf.cutoff_len",
    "hf.model_max_length",
    "hf.max_length",
    "hf.max_seq_len",
    "hf.block_size",
)
HARDWARE = ("gpu.", "node.", "fabric.", "kernels.")
LAUNCHERS: dict[str, Literal["bridge", "trainer"]] = {"bridge": "bridge", "huggingface": "trainer"}
"""By kind of reading the software that starts the framework and may express less."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a file means."""

    reading: Reading
    values: dict[str, Value]
    """Everything stated, and the framework's defaults for what is not."""
    plain: dict[str, Any]
    """The values alone."""
    recipe: Recipe
    layout: Layout
    sized: bool
    """Whether the model is known; where it is not, recipe.model stands in for the rules alone and
    nothing can be costed.
    """
    unresolved: tuple[Unresolved, ...]
    assumed: tuple[str, ...]
    absent: dict[str, Flag]
    """Of what is stated the flags that the stated version has not: they count for nothing."""

    @property
    def counted(self) -> bool:
        """Whether the GPU count is stated."""
        return all(question.name != "gpus" for question in self.unresolved)


def interpret(
    reading: Reading,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
    sets: Mapping[str, str] | None = None,
) -> Launch:
    """The recipe and the layout of a file; what it cannot tell is taken as a default and listed.

    `sets` restates arguments (`seq_length`), the framework's version (`framework_version`), the
    software (`megatron-core@0.16`) or stack, or figures of the cluster
    (`fabric.nic_gbytes_per_s`). Raises InputError for options that name nothing known.
    """
    if reading.kind == "megatron-deepspeed" and set(architecture.OURS) <= reading.values.keys():
        # the script that `emit` writes: no Megatron, and its own flags
        reading = replace(reading, kind="deepspeed", unknown=())
    restated = dict(sets or {})
    figures = [name for name in restated if name.startswith(HARDWARE)]
    overrides = [f"{name}={restated.pop(name)}" for name in figures]
    own_version = restated.pop("framework_version", None)
    own_stack = restated.pop("stack", None)
    own_software = restated.pop("software", None)
    if own_stack and "@" in own_stack:
        refuse_as("stack", own_stack)
    if own_software:
        named = own_stack
        own_stack, own_version = agreed(own_software, named, own_version, reading.framework)
        if named is None and own_stack in PLAIN.values():
            own_stack = None  # the file's switches hold
    image = restated.pop("container", None)
    image = container_named(image) if image else None
    own_version = own_version or held_version(reading.framework, image)
    version, version_says = defaults.version(reading, own_version)
    values = filled(reading, version, restated)
    stated = own_version is not None or reading.version_stated
    absent = defaults.absent(reading, values, version) if stated else {}
    kept = {name: value.value for name, value in values.items() if name not in absent}
    plain = clean(kept)
    plain |= megatron_kinds.implied(plain)
    machine = gpu_count.hardware(plain, cluster, overrides)
    count = gpu_count.gpus(plain, reading, gpus)
    versioned = plain | {"framework_version": version}
    shaped = architecture.architecture(versioned, reading, model)
    length, length_says, length_open = _length(plain, reading, shaped.spec)
    layout, batch = _layout(plain, reading, count.value, shaped.spec)
    spec = shaped.spec or architecture.stand_in(plain, layout, length)
    what = finetuning.trained(plain, reading, shaped.spec, length)
    left_out = shaped.spec.note if shaped.spec else ""
    assumed = (
        count.says,
        machine.says,
        shaped.says,
        left_out,
        length_says,
        version_says,
        what.says,
    )
    recipe = _recipe(
        plain,
        reading,
        (spec, machine.value, count.value, length, batch, version),
        own_stack,
        layout,
    )
    recipe = recipe.model_copy(update={"assumed": tuple(filter(None, assumed)), **what.fields})
    titan = split(own_software)[1] if own_software and own_software.startswith(TORCHTITAN) else None
    if image or titan:
        versions = of_run(reading.framework, version, image, titan)
        recipe = recipe.model_copy(update={"versions": versions})
    if shaped.spec is not None:
        layout = _without_idle_modules(recipe, layout)
    values |= {"launch.gpus": count.origin, "launch.hardware": machine.origin}
    if shaped.origin:
        values["model"] = shaped.origin
    origin: Origin = "flag" if reading.framework_version else "default"
    if own_version:
        origin = "option"
    values["framework_version"] = Value(version, origin, version_says)
    answered = set(restated)
    if gpus:
        answered |= {"launch.gpus", "launch.nodes", "launch.gpus_per_node"}
    still_open = [question for question in reading.unresolved if question.name not in answered]
    return Launch(
        reading,
        values,
        plain,
        recipe,
        layout,
        shaped.spec is not None,
        _once((*count.open, *still_open, *machine.open, *shaped.open, *length_open, *what.open)),
        recipe.assumed,
        absent,
    )


def reinterpret(launch: Launch, reading: Reading, gpus: int | None = None) -> Launch:
    """Another reading of the same launch: what the options said of GPUs, model and version
    stays.
    """
    before = launch.recipe
    if not gpus:
        counted = launch.values["launch.gpus"].origin == "option"
        gpus = before.gpus if counted else None
    named = launch.values["framework_version"].origin == "option"
    sets = {"framework_version": before.framework_version} if named else {}
    other = interpret(reading, None, gpus, None, sets)
    spec = before.model if launch.sized else None
    layout, batch = _layout(other.plain, reading, other.recipe.gpus, spec)
    kept = {
        "model": spec or other.recipe.model,
        "hardware": before.hardware,
        "seq_length": before.seq_length,
        "global_batch_size": batch,
        "lora": before.lora,
    }
    recipe = other.recipe.model_copy(update=kept)
    if launch.sized:
        layout = _without_idle_modules(recipe, layout)
    return replace(other, recipe=recipe, layout=layout, sized=launch.sized)


def _without_idle_modules(recipe: Recipe, layout: Layout) -> Layout:
    """The layout without modules of selective recomputation that the model has not, where
    Megatron-LM takes their names all the same.
    """
    kept = layout.recompute_modules & ~idle_modules(recipe, layout.recompute_modules)
    if kept == layout.recompute_modules:
        return layout
    return replace(layout, recompute_modules=kept, recompute=layout.recompute if kept else 0)


def filled(reading: Reading, version: str, restated: Mapping[str, str]) -> dict[str, Value]:
    """Defaults, below what the file states, below what the options state."""
    experts = bool(reading.values.get("num_experts"))
    below: dict[str, Value] = {}
    if reading.framework == "megatron":
        below = defaults.megatron(version, experts, reading.kind)
    elif reading.framework == "deepspeed":
        below = defaults.deepspeed(version)
    values = below | reading.values
    for name, text in restated.items():
        values[name] = Value(_value(text, name), "option", f"--set {name}")
    return values


def _value(text: str, name: str) -> Any:
    try:
        return parse_yaml(text)
    except Exception:
        raise InputError(f"--set {name} must get one plain value, but got {text[:60]!r}") from None


def _once(questions: tuple[Unresolved, ...]) -> tuple[Unresolved, ...]:
    """Of each name the first; in the order of the last of each."""
    by_name = {question.name: question for question in reversed(questions)}
    return tuple(by_name.values())[::-1]


def _length(
    plain: dict[str, Any], reading: Reading, spec: ModelSpec | None
) -> tuple[int, str, tuple[Unresolved, ...]]:
    for name in LENGTHS:
        if plain.get(name):
            return max(whole_number(plain, name), 1), "", ()
    length = min(SEQUENCE, spec.max_seq_length) if spec else SEQUENCE
    says = f"seq_length: {length:,} tokens, as the file states none"
    why = f"{says}; --set seq_length=N supplies it"
    return length, says, (Unresolved("seq_length", why, reading.file),)


def _layout(
    plain: dict[str, Any], reading: Reading, gpus: int, spec: ModelSpec | None
) -> tuple[Layout, int]:
    if spec is not None and spec.moe is not None and not expert_count(plain):
        plain = plain | {"num_experts": spec.moe.num_experts}
    layers = spec.num_layers if spec else 0
    if reading.framework == "deepspeed":
        return layout_knobs.deepspeed(plain, gpus, layers)
    if reading.framework == "torch":
        return layout_knobs.torch(plain, gpus, spec)
    return layout_knobs.megatron(plain, gpus, layers or whole_number(plain, "num_layers", 1))


def _recipe(
    plain: dict[str, Any],
    reading: Reading,
    parts: tuple[ModelSpec, HardwareProfile, int, int, int, str],
    stack: str | None,
    layout: Layout,
) -> Recipe:
    spec, hardware, gpus, length, batch, version = parts
    version_of(reading.framework, version)
    precision: Any = software_choice.precision(plain, reading.framework)
    kernel: Any = software_choice.attention(plain, reading, hardware, precision)
    versioned = plain | {"framework_version": version}
    return Recipe(
        model=spec,
        hardware=hardware,
        software=software_choice.software(versioned, reading, stack, layout.dp * layout.cp),
        gpus=max(gpus, 1),
        seq_length=length,
        global_batch_size=batch,
        precision=precision,
        framework_version=version,
        attention=kernel,
        launched_by=LAUNCHERS.get(reading.kind, ""),
    )


def computes(recipe: Recipe) -> bool:
    """Whether the GPU has matrix products of the training's precision: without, there is nothing to
    time.
    """
    return operand(recipe.precision) in recipe.hardware.gpu.peak_tflops
