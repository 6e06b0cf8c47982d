"""The answers of `models`, `clusters`, `schedules` and `stacks` as text: a table of all of a kind,
or one document in full with its sources.
"""

from __future__ import annotations

import re
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.answers import Known
from planner.report.formulas import stated
from planner.report.text.parts import grid

BILLION = 1e9
NOTES = {
    "models": (
        (
            "context: tokens of the longest sequence. `ppplan models NAME` gives one in full;"
            " --model also takes a Hugging Face config.json or a YAML."
        ),
    ),
    "clusters": (
        (
            "TFLOP/s: dense peak. in node, NICs: one direction; in node per GPU, NICs of a node."
            " rates: whether kernel rates were measured on this GPU or are assumed from a"
            " relative's. `ppplan clusters NAME` gives one in full, with sources."
        ),
    ),
}
"""What the columns of a table mean."""


def text(answer: Known) -> Group:
    """A table of all documents of a kind, or every field of one."""
    if not answer.by_name:
        notes = [Text(note, "dim") for note in NOTES.get(answer.kind, ())]
        return Group(_TABLES[answer.kind](answer.documents), *notes)
    document = answer.documents[0]
    fields = [_line(depth, label, value) for depth, label, value in lines(document)]
    formulas = _schedule_formulas(document["name"]) if answer.kind == "schedules" else []
    return Group(*fields, *formulas)


def _line(depth: int, label: str, text: str) -> Padding:
    return Padding(
        Text.assemble((f"{label}:", "bold"), f" {text}" if text else ""),
        (0, 0, 0, 2 * depth),
        expand=False,
    )


def _schedule_formulas(name: str) -> list[Any]:
    """What the schedule's module states in closed form."""
    from planner.report.text.explain import written
    from planner.schedules.table import SCHEDULES

    found = list(stated(SCHEDULES[name].closed_forms))
    return written(found) if found else [Text("\nNo closed form: the simulator answers.")]


def lines(value: dict[str, Any], depth: int = 0) -> list[tuple[int, str, str]]:
    """(depth, field, value) of a document; fields that say nothing are left out."""
    out: list[tuple[int, str, str]] = []
    for key, held in value.items():
        if isinstance(held, dict):
            out += [(depth, str(key), ""), *lines(held, depth + 1)]
        elif held not in (None, "", [], ()):
            out.append((depth, str(key), _shown(held)))
    return out


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _models(documents: tuple[dict[str, Any], ...]) -> Table:
    table = grid(
        "model",
        "B parameters",
        "B active",
        "layers",
        "hidden",
        "ffn",
        "heads",
        "kv",
        "vocab",
        "context",
    )
    for one in documents:
        sizes = (
            one[k]
            for k in (
                "num_layers",
                "hidden_size",
                "ffn_size",
                "num_heads",
                "num_kv_heads",
                "vocab_size",
                "max_seq_length",
            )
        )
        billions = (f"{one[kind] / BILLION:.2f}" for kind in ("parameters", "active_parameters"))
        table.add_row(one["name"], *billions, *(f"{size:,}" for size in sizes))
    return table


def _clusters(documents: tuple[dict[str, Any], ...]) -> Table:
    table = grid(
        "cluster",
        "GPUs a node",
        "GiB",
        "bf16 TFLOP/s",
        "HBM GB/s",
        "in node GB/s",
        "NICs GB/s",
        "rates",
    )
    for one in documents:
        gpu, node, fabric = one["gpu"], one["node"], one["fabric"]
        inside = node["domain" if node["domain_gpus"] > 1 else "host"]["gbytes_per_s"]
        peak = gpu["peak_tflops"].get("bf16") or gpu["peak_tflops"].get("fp16")
        table.add_row(
            one["name"],
            str(node["gpus"]),
            f"{gpu['memory_gib']:.0f}",
            f"{peak:,.0f}",
            f"{gpu['hbm_gbytes_per_s']:,.0f}",
            f"{inside:,.0f}",
            f"{fabric['nics']} x {fabric['nic_gbytes_per_s']:g}",
            "assumed" if one["kernels"]["assumed"] else "measured",
        )
    return table


def _schedules(documents: tuple[dict[str, Any], ...]) -> Table:
    return _said(
        documents,
        "schedule",
        lambda one: (
            f"{one['says']} Runs on: {', '.join(_families(one['stacks'])) or 'no stack yet'}."
        ),
    )


def _families(stacks: list[str]) -> list[str]:
    """Without the dated and special versions of a stack that is named itself."""
    return [one for one in stacks if not any(one.startswith(f"{other}-") for other in stacks)]


def _stacks(documents: tuple[dict[str, Any], ...]) -> Table:
    """The first clause of the source says which software of which time."""
    return _said(
        documents,
        "stack",
        lambda one: (
            f"{re.split('[;:(]', one['source'])[0].strip()}: {one['framework']}, "
            f"{one['attention']} attention; {', '.join(one['schedules'])}"
        ),
    )


def _said(documents: tuple[dict[str, Any], ...], kind: str, says: Any) -> Table:
    table = grid(kind, "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for one in documents:
        table.add_row(one["name"], says(one))
    return table


_TABLES = {"models": _models, "clusters": _clusters, "schedules": _schedules, "stacks": _stacks}
