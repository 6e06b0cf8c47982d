"""The knobs of one run, or, with columns in its fields, of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from planner.numeric import Mask as Mask
from planner.numeric import Numeric as Numeric
from planner.schedules import table

Knob = TypeVar("Knob", bound=Numeric, covariant=True, default=int)
"""What the fields of a Layout hold: ints (the default), or Numeric in Layouts."""

SCHEDULES = tuple(table.SCHEDULES)
"""Names by code, as the files of planner.schedules state them."""
RECOMPUTE = ("none", "selective", "full")
MODULES = (
    "core_attn",
    "moe_act",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "shared_experts",
    "ops",
)
"""Modules of selective recomputation; a layout holds a bit mask of them. ops: torchtitan's choice
of operations (attention, every second product and what was sent are kept).
"""
OFFLOADS = ("none", "optimizer-cpu", "optimizer-nvme", "params-cpu", "params-nvme")
"""What is kept off the device, and where; with the parameters their optimizer goes too."""

SCHEDULE_CODE = {name: code for code, name in enumerate(SCHEDULES)}
RECOMPUTE_CODE = {name: code for code, name in enumerate(RECOMPUTE)}
OFFLOAD_CODE = {name: code for code, name in enumerate(OFFLOADS)}


def module_mask(names: tuple[str, ...] | list[str]) -> int:
    """The bit mask of recompute modules: bit i is MODULES[i]."""
    return sum(1 << MODULES.index(name) for name in names)


def module_names(mask: int) -> list[str]:
    return [name for bit, name in enumerate(MODULES) if mask >> bit & 1]


_ZERO: Any = 0
_ONE: Any = 1
_DEFAULT_SCHEDULE: Any = SCHEDULE_CODE["1f1b"]


@dataclass(frozen=True, slots=True)
class Layout(Generic[Knob]):
    """Parallel degrees (gpus = tp*pp*dp*cp), batch split (gbs = dp*mbs*m), schedule, recomputation,
    sharding.

    Knobs that are names are small integer codes inside (SCHEDULES, RECOMPUTE, MODULES, OFFLOADS);
    switches are 0 or 1.
    """

    tp: Knob = _ONE
    pp: Knob = _ONE
    dp: Knob = _ONE
    cp: Knob = _ONE
    """Ranks that share a sequence: Megatron's ring, DeepSpeed's Ulysses."""
    ep: Knob = _ONE
    etp: Knob = _ONE
    v: Knob = _ONE
    """Virtual stages per pipeline rank; 1 = none."""
    mbs: Knob = _ONE
    m: Knob = _ONE
    """Micro-batches a step."""
    sp: Knob = _ZERO
    zero: Knob = _ONE
    """Under Megatron: 0 none, 1 distributed optimizer, 2 and 3 Megatron-FSDP's optim_grads and
    optim_grads_params.
    """
    schedule: Knob = _DEFAULT_SCHEDULE
    group: Knob = _ZERO
    """Megatron's micro-batch group size of a virtual stage; 0 = pp."""
    recompute: Knob = _ZERO
    recompute_layers: Knob = _ZERO
    """With full: layers of each virtual stage that are recomputed; 0 = all."""
    recompute_modules: Knob = _ZERO
    """With selective: bit mask of MODULES."""
    account_for_embedding: Knob = _ZERO
    account_for_loss: Knob = _ZERO
    first_layers: Knob = _ZERO
    """Layers of the first pipeline rank; 0 = as the even split gives."""
    last_layers: Knob = _ZERO
    stage_layout: str = ""
    """Megatron's --pipeline-model-parallel-layout; belongs to one layout, never to columns."""
    offload: Knob = _ZERO
    """Code of OFFLOADS: all of them under DeepSpeed, optimizer-cpu under Megatron."""
    hpz: Knob = _ONE
    """ZeRO++: ranks that share a second copy of the weights, so that the backward pass gathers
    among them alone; 1 = none.
    """
    cp_a2a: Knob = _ONE
    """Megatron: of the cp ranks, how many exchange heads for tokens all to all, the rest being a
    ring; 1 = ring alone, cp = no ring.
    """

    @overload
    def __getitem__(self, row: int) -> Layout: ...
    @overload
    def __getitem__(self, row: slice | NDArray[Any]) -> Layouts: ...
    def __getitem__(self, row: int | slice | NDArray[Any]) -> Layouts:
        """An int gives one layout of plain ints; a mask, slice or index array gives a batch."""
        knobs = (getattr(self, name) for name in FIELDS)
        picked = (x[row] if isinstance(x, np.ndarray) else x for x in knobs)
        plain: list[Any] = [x.item() if isinstance(x, np.generic) else x for x in picked]
        return Layout(*plain)

    def __len__(self) -> int:
        """Number of layouts in the batch (1 when every field is a plain number)."""
        knobs = (getattr(self, name) for name in FIELDS)
        return max((len(knob) for knob in knobs if isinstance(knob, np.ndarray)), default=1)

    @property
    def gpus(self) -> Knob:
        return self.tp * self.pp * self.dp * self.cp  # type: ignore[operator, return-value]

    @property
    def gbs(self) -> Knob:
        return self.dp * self.mbs * self.m  # type: ignore[operator, return-value]

    @property
    def replicas(self) -> Knob:
        """Ranks that hold the same dense parameters and share their states: dp cp."""
        return self.dp * self.cp  # type: ignore[operator, return-value]

    @property
    def pipelined(self) -> NDArray[np.bool_]:
        return np.asarray(self.pp) > 1

    @property
    def interleaved(self) -> NDArray[np.bool_]:
        """Whether a rank has several virtual stages."""
        return np.asarray(self.v) > 1

    @property
    def tensor_split(self) -> NDArray[np.bool_]:
        return np.asarray(self.tp) > 1

    @property
    def sequence_split(self) -> NDArray[np.bool_]:
        """Whether sequence parallelism is on."""
        return np.asarray(self.sp) == 1

    @property
    def sequence_shards(self) -> Numeric:
        """By how much sequence parallelism splits what tensor parallelism does not: tp, or 1."""
        return np.where(self.sequence_split, self.tp, 1)

    def sharded(self, stage: int) -> NDArray[np.bool_]:
        """Whether the layout shards as ZeRO of this stage or a higher one does: 1 optimizer states,
        2 gradients, 3 weights.
        """
        return np.asarray(self.zero) >= stage

    @property
    def shards_gradients(self) -> NDArray[np.bool_]:
        return self.sharded(2)

    def shards(self, stage: int) -> Numeric:
        """Over how many ranks what that ZeRO stage shards is split: dp cp, or 1."""
        return np.where(self.sharded(stage), self.replicas, 1)

    @property
    def recomputes_all(self) -> NDArray[np.bool_]:
        """Whether recomputation is full, of all layers or of some."""
        return np.asarray(self.recompute) == RECOMPUTE_CODE["full"]

    @property
    def recomputes_modules(self) -> NDArray[np.bool_]:
        """Whether recomputation is selective."""
        return np.asarray(self.recompute) == RECOMPUTE_CODE["selective"]

    def recomputes(self, module: str) -> Numeric:
        """1 where the mask of selective recomputation has the module's bit, else 0."""
        return np.right_shift(self.recompute_modules, MODULES.index(module)) & 1

    def drops(self, module: str) -> Numeric:
        """1 where recomputation is selective and names the module."""
        return self.recomputes(module) * self.recomputes_modules

    def named(self: Layout) -> dict[str, Any]:
        """One layout with names in place of codes: what JSON and plan.yaml hold."""
        out: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        out["gbs"] = self.gbs
        out["schedule"] = SCHEDULES[self.schedule]
        out["recompute"] = RECOMPUTE[self.recompute]
        out["offload"] = OFFLOADS[self.offload]
        out["recompute_modules"] = module_names(self.recompute_modules)
        for switch in ("sp", "account_for_embedding", "account_for_loss"):
            out[switch] = bool(out[switch])
        return out

    def __str__(self) -> str:
        """One layout in a line, as reports write it: `tp 8 pp 4 dp 1 v 5 mbs 1 m 64 zero 1 sp
        interleaved`. After the degrees and the batch stands what is not at its default.
        """
        if len(self) > 1:
            return f"{len(self):,} layouts"
        named, default = self[0].named(), Layout().named()
        parts = []
        for word, value in named.items():
            if word in ("tp", "pp", "dp", "mbs", "m", "zero"):
                parts.append(f"{word} {value}")
            elif value == default[word] or word == "gbs":
                continue
            elif value is True:
                parts.append(word)
            elif word == "schedule":
                parts.append(value)
            elif isinstance(value, list):
                parts.append(f"{word} {','.join(value)}")
            else:
                parts.append(f"{word} {value}")
        return " ".join(parts)

    def __repr__(self) -> str:
        """The fields that are not at their defaults, names in place of codes."""
        if len(self) > 1:
            return f"<{self} as columns>"
        named, default = self[0].named(), Layout().named()
        del named["gbs"]
        fields = [f"{word}={value!r}" for word, value in named.items() if value != default[word]]
        return f"Layout({', '.join(fields)})"

    @property
    def recomputation(self: Layout) -> str:
        """Of one layout: none, the modules of selective, or how many layers of full."""
        name = RECOMPUTE[self.recompute]
        if name == "selective":
            return ",".join(module_names(self.recompute_modules)) or name
        if name == "full" and self.recompute_layers:
            return f"{self.recompute_layers} layer{'s' * (self.recompute_layers > 1)}"
        return name

    @staticmethod
    def from_named(knobs: dict[str, Any]) -> Layout:
        """The inverse of named(); names must be known (the caller checks)."""
        known = {f.name for f in fields(Layout)}
        out: dict[str, Any] = {k: x for k, x in knobs.items() if k in known}
        out["schedule"] = SCHEDULE_CODE[knobs["schedule"]]
        out["recompute"] = RECOMPUTE_CODE[knobs["recompute"]]
        out["offload"] = OFFLOAD_CODE[knobs.get("offload", "none")]
        out["recompute_modules"] = module_mask(knobs["recompute_modules"])
        plain: dict[str, Any] = {k: int(x) if isinstance(x, bool) else x for k, x in out.items()}
        return Layout(**plain)


FIELDS = tuple(f.name for f in fields(Layout))
Layouts = Layout[Numeric]
"""One layout, or many: every field a number or a column with one value a layout."""


def columns(layouts: Sequence[Layout]) -> Layouts:
    """Layouts as one batch, without their stage layouts."""
    knobs: dict[str, Any] = {
        knob.name: np.array([getattr(layout, knob.name) for layout in layouts])
        for knob in fields(Layout)
        if knob.name != "stage_layout"
    }
    return Layout(**knobs)
