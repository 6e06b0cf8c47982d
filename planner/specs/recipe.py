"""Recipe: model + hardware + GPU count + batch + limits of the search, every document resolved."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from planner.layout import Layouts
from planner.numeric import Numeric
from planner.specs import layers
from planner.specs.documents import FrozenDocument
from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec, Vision
from planner.specs.software import Software
from planner.specs.software_versions import SoftwareVersions
from planner.specs.workload import Frozen, Lora, Optimizer

Precision = Literal[
    "bf16",
    "fp16",
    "fp32",
    "fp8-delayed",
    "fp8-tensorwise",
    "fp8-rowwise",
    "fp8-blockwise",
    "mxfp8",
    "nvfp4",
]


class Bounds(FrozenDocument):
    """The range that a question allows a knob, ends included."""

    low: int
    high: int


class Recipe(FrozenDocument):
    """A question with every document resolved: what the cost model and the search read. What
    changes learning (batch, sequence length, precision) is fixed here and never searched.
    """

    model: ModelSpec
    hardware: HardwareProfile
    software: Software
    gpus: PositiveInt
    seq_length: PositiveInt
    global_batch_size: PositiveInt
    precision: Precision = "bf16"
    framework_version: str = "0.19"
    attention: Literal["flash", "fused", "unfused"] = "flash"
    knobs: dict[str, Bounds] = Field(default_factory=dict)
    """Limits of the search by layout field: tp, pp, dp, mbs, m, v, zero, sp, recompute, schedule
    (as codes), ...
    """
    max_memory_gib: PositiveFloat | None = None
    optimizer: Optimizer = "adam"
    """Which update; adam keeps the states that the software says, the others have theirs
    (cost/memory/optimizer_states.py).
    """
    lora: Lora | None = None
    """Adapters: nothing else is trained then. None: the weights themselves are trained."""
    frozen: tuple[Frozen, ...] = ()
    """Parts of the model that are not trained, where there are no adapters."""
    packing: bool | None = None
    """True: samples of mean_length tokens fill a sequence, each attends to itself; False: one
    padded sample each; None: whole sequences.
    """
    mean_length: PositiveInt | None = None
    """Mean tokens of a sample; None: samples are as long as the sequence."""
    images_per_sample: int | None = None
    """What the vision tower has to do; None: the text part is trained without it."""
    image_size: PositiveInt | None = None
    """Pixels of an image's edge; None where the tower takes one size."""
    switches: dict[str, bool | int] = Field(default_factory=dict)
    """Overlap switches and bucket sizes that a software is told, by its own words
    (specs/switches.py); the cost model knows none.
    """
    launched_by: Literal["", "accelerate", "bridge", "trainer"] = ""
    """Other software that starts the framework and may express less: Accelerate, Megatron-Bridge,
    scripts of Hugging Face's Trainer.
    """
    versions: SoftwareVersions = SoftwareVersions()
    """Of the framework and what stands below it, as far as they are known."""
    assumed: tuple[str, ...] = ()
    """What was not stated and got a default, in words."""
    tokens_per_step_note: str = ""

    def allows(self, knob: str, value: Any) -> Any:
        """Whether the question allows a knob this value; of a column, each of its values."""
        bounds = self.knobs.get(knob)
        if bounds is None:
            return True
        return (bounds.low <= value) & (value <= bounds.high)

    def fixed(self, knob: str) -> int | None:
        """The single value that the question allows a knob; None where it leaves a choice."""
        bounds = self.knobs.get(knob)
        return bounds.low if bounds is not None and bounds.low == bounds.high else None

    @property
    def framework(self) -> Literal["megatron", "deepspeed", "torch"]:
        return self.software.framework

    @property
    def kinds(self) -> tuple[Recipe, ...]:
        """The question for each kind of layer, of a model that has no other: layers.kinds()."""
        return tuple(
            self.model_copy(update={"model": model}) for model in layers.kinds(self.model).values()
        )

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation, and of a weight that is sent: 4 under fp32, else 2."""
        return 4.0 if self.precision == "fp32" else 2.0

    @property
    def samples_per_sequence(self) -> float:
        """How many samples share a sequence: seq_length over their mean when packed, else 1."""
        return self.seq_length / self.mean_length if self.packing and self.mean_length else 1.0

    @property
    def used_share(self) -> float:
        """Share of a sequence's tokens that are not padding."""
        return (
            min(self.mean_length / self.seq_length, 1.0)
            if self.packing is False and self.mean_length
            else 1.0
        )

    @property
    def tower(self) -> Vision | None:
        """The vision tower that stands in front of the layers; None: text alone."""
        return self.model.vision if self.images_per_sample is not None else None

    @property
    def images_per_sequence(self) -> float:
        """Images in a sequence of the batch, packed samples' together."""
        return (self.images_per_sample or 0) * self.samples_per_sequence

    @property
    def tokens(self) -> int:
        return self.global_batch_size * self.seq_length

    def tokens_per_rank(self, layout: Layouts) -> Numeric:
        """Tokens of a micro-batch on one rank.

        Formula: mbs s / cp
        Source:  [narayanan2021] sec. 2.2; [megatron-core] context parallelism
        Assumes: cp divides the sequence; sequence parallelism, which splits some activations
                 further, is left to the caller.
        """
        return layout.mbs * (self.seq_length / layout.cp)
