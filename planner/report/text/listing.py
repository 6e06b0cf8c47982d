"""The answers of `models`, `clusters`, `schedules`, `stacks` and `switches` as text: a table of all
of a kind, or one document in full with its sources.
"""

from __future__ import annotations

import re
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.answers import Known
from planner.report.formulas import formulas_in
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
    "stacks": (
        (
            "`ppplan stacks NAME` gives one in full; --all lists those too that are there for"
            " published runs alone."
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

    formulas = list(formulas_in(SCHEDULES[name].closed_forms))
    return written(formulas) if formulas else [Text("\nNo closed form: the simulator answers.")]


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
    sizes = (
        "num_layers",
        "hidden_size",
        "ffn_size",
        "num_heads",
        "num_kv_heads",
        "vocab_size",
        "max_seq_length",
    )
    for model in documents:
        table.add_row(
            model["name"],
            f"{model['parameters'] / BILLION:.2f}",
            f"{model['active_parameters'] / BILLION:.2f}",
            *(f"{model[size]:,}" for size in sizes),
        )
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
    for cluster in documents:
        gpu, node, fabric = cluster["gpu"], cluster["node"], cluster["fabric"]
        inside = node["domain" if node["domain_gpus"] > 1 else "host"]["gbytes_per_s"]
        peak = gpu["peak_tflops"].get("bf16") or gpu["peak_tflops"].get("fp16")
        table.add_row(
            cluster["name"],
            str(node["gpus"]),
            f"{gpu['memory_gib']:.0f}",
            f"{peak:,.0f}",
            f"{gpu['hbm_gbytes_per_s']:,.0f}",
            f"{inside:,.0f}",
            f"{fabric['nics']} x {fabric['nic_gbytes_per_s']:g}",
            "assumed" if cluster["kernels"]["assumed"] else "measured",
        )
    return table


def _schedules(documents: tuple[dict[str, Any], ...]) -> Table:
    table = _sentences("schedule")
    for schedule in documents:
        stacks = ", ".join(_families(schedule["stacks"])) or "no stack yet"
        table.add_row(schedule["name"], f"{schedule['says']} Runs on: {stacks}.")
    return table


def _families(stacks: list[str]) -> list[str]:
    """Without the dated and special versions of a stack that is named itself."""
    return [name for name in stacks if not name.startswith(tuple(f"{other}-" for other in stacks))]


def _stacks(documents: tuple[dict[str, Any], ...]) -> Table:
    """The first clause of the source says which software of which time; a distribution what it
    stands for. What is there for published runs alone comes last.
    """
    table = _sentences("stack")
    for stack in sorted(documents, key=lambda stack: bool(stack["reproduces"])):
        if stack["reproduces"]:
            says = f"Reproduces published runs: {stack['reproduces']}."
            table.add_row(Text(stack["name"], "dim"), Text(says, "dim"))
        elif stack["stands_for"]:
            table.add_row(stack["name"], f"{stack['stands_for']}.")
        else:
            software = re.split("[;:(]", stack["source"])[0].strip()
            table.add_row(
                stack["name"],
                f"{software}: {stack['framework']}, {stack['attention']} attention;"
                f" {', '.join(stack['schedules'])}",
            )
    return table


def _switches(documents: tuple[dict[str, Any], ...]) -> Table:
    table = _sentences("switch")
    for switch in documents:
        if "not_modelled" in switch:
            reason = f"{switch['framework']}, not modelled: {switch['not_modelled']}."
            table.add_row(Text(switch["name"], "dim"), Text(reason, "dim"))
            continue
        table.add_row(
            switch["name"],
            f"{switch['says']} {switch['framework']}: {switch['values']}; {switch['numerics']};"
            f" {switch['effect']}.",
        )
    return table


def _sentences(kind: str) -> Table:
    """A table of a name and a sentence in each row."""
    table = grid(kind, "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    return table


_TABLES = {
    "models": _models,
    "clusters": _clusters,
    "schedules": _schedules,
    "stacks": _stacks,
    "switches": _switches,
}
