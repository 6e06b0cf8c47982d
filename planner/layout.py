"""The knobs of one run, or, with columns in its fields, of many."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

Numeric = Any
"""One number, or a numpy column with one value a layout: formulas never ask which."""

SCHEDULES = (
    "naive",
    "gpipe",
    "1f1b",
    "interleaved",
    "interleaved-torch",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-1p",
    "zb-2p",
    "zbv",
    "zbv-auto",
    "v-half",
    "v-min",
    "interleaved-zb",
    "dualpipe",
    "dualpipev",
)
RECOMPUTE = ("none", "selective", "full")
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""Modules of selective recomputation; a layout holds a bit mask of them."""
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


@dataclass(frozen=True, slots=True)
class Layout:
    """Parallel degrees (gpus = tp*pp*dp*cp), batch split (gbs = dp*mbs*m), schedule, recomputation,
    sharding.

    Knobs that are names are small integer codes inside (SCHEDULES, RECOMPUTE, MODULES, OFFLOADS);
    switches are 0 or 1.
    """

    tp: Numeric = 1
    pp: Numeric = 1
    dp: Numeric = 1
    cp: Numeric = 1
    """Ranks that share a sequence: Megatron's ring, DeepSpeed's Ulysses."""
    ep: Numeric = 1
    etp: Numeric = 1
    v: Numeric = 1
    """Virtual stages per pipeline rank; 1 = none."""
    mbs: Numeric = 1
    m: Numeric = 1
    """Micro-batches a step."""
    sp: Numeric = 0
    zero: Numeric = 1
    """Under Megatron: 0 none, 1 distributed optimizer, 2 and 3 Megatron-FSDP's optim_grads and
    optim_grads_params.
    """
    schedule: Numeric = SCHEDULE_CODE["1f1b"]
    group: Numeric = 0
    """Megatron's micro-batch group size of a virtual stage; 0 = pp."""
    recompute: Numeric = 0
    recompute_layers: Numeric = 0
    """With full: layers of each virtual stage that are recomputed; 0 = all."""
    recompute_modules: Numeric = 0
    """With selective: bit mask of MODULES."""
    account_for_embedding: Numeric = 0
    account_for_loss: Numeric = 0
    first_layers: Numeric = 0
    """Layers of the first pipeline rank; 0 = as the even split gives."""
    last_layers: Numeric = 0
    stage_layout: str = ""
    """Megatron's --pipeline-model-parallel-layout; belongs to one layout, never to columns."""
    offload: Numeric = 0
    """Code of OFFLOADS: all of them under DeepSpeed, optimizer-cpu under Megatron."""
    hpz: Numeric = 1
    """ZeRO++: ranks that share a second copy of the weights, so that the backward pass gathers
    among them alone; 1 = none.
    """
    cp_a2a: Numeric = 1
    """Megatron: of the cp ranks, how many exchange heads for tokens all to all, the rest being a
    ring; 1 = ring alone, cp = no ring.
    """

    def __getitem__(self, row: Any) -> Layout:
        """An int gives one layout of plain ints; a mask, slice or index array gives a batch."""
        picked = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {k: x[row] if isinstance(x, np.ndarray) else x for k, x in picked.items()}
        return Layout(**{k: x.item() if isinstance(x, np.generic) else x for k, x in taken.items()})

    def __len__(self) -> int:
        """Number of layouts in the batch (1 when every field is a plain number)."""
        return max(
            (len(x) for f in fields(self) if isinstance(x := getattr(self, f.name), np.ndarray)),
            default=1,
        )

    @property
    def gpus(self) -> Numeric:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def gbs(self) -> Numeric:
        return self.dp * self.mbs * self.m

    def named(self) -> dict[str, Any]:
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
        named, default = self.named(), Layout().named()
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
        named, default = self.named(), Layout().named()
        del named["gbs"]
        stated = [f"{word}={value!r}" for word, value in named.items() if value != default[word]]
        return f"Layout({', '.join(stated)})"

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
