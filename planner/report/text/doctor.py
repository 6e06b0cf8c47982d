"""The answer of `doctor` as text: what this machine has, and what would work on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from planner.specs.software_versions import UNKNOWN
from planner.units import GIB

if TYPE_CHECKING:
    from planner.launch.capabilities import Able, Diagnosis
    from planner.launch.machine import Machine


def text(answer: Diagnosis) -> Any:
    """A rich renderable."""
    from rich.console import Group

    from planner.report.text.parts import bullets, paragraph

    machine, near = answer.machine, answer.nearest
    warned: list[Any] = []
    if answer.warnings:
        warned = [paragraph("Mind", ""), bullets(answer.warnings)]
    return Group(
        paragraph(
            "Machine",
            f"{machine.host}, {machine.system}, {machine.cores} cores,"
            f" {machine.memory_bytes / GIB:.0f} GiB of memory ({machine.available_bytes / GIB:.0f}"
            f" free), Python {machine.python}.",
        ),
        paragraph("GPUs", _gpus(machine)),
        paragraph("Versions", _versions(machine)),
        paragraph("Nearest cluster", f"{near.cluster or 'none'}: {near.why}."),
        paragraph("Runners of tune", ""),
        _table(answer.runners),
        paragraph("Launchers of tune", ""),
        _table(answer.launchers),
        *warned,
    )


def _table(rows: Iterable[Able]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for able in rows:
        table.add_row(" ", able.name, "works" if able.works else "no", able.why)
    return table


def _gpus(machine: Machine) -> str:
    if not machine.gpus:
        return f"none ({machine.no_gpus})."
    kinds = Counter((gpu.name, round(gpu.memory_bytes / GIB)) for gpu in machine.gpus)
    listed = ", ".join(
        f"{count} x {name}, {size} GiB each" for (name, size), count in kinds.items()
    )
    driver = machine.gpus[0].driver
    return f"{listed}{driver and f'; driver {driver}'}{_links(machine)}."


def _links(machine: Machine) -> str:
    if machine.links is None or not machine.links.kinds:
        return ""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(machine.links.kinds.items()))
    joined = "no NVLink"
    if machine.links.domain_gpus > 1:
        joined = f"NVLink joins {machine.links.domain_gpus} of them"
    return f"; {joined} (pairs: {kinds})"


def _versions(machine: Machine) -> str:
    installed, lacking = [], []
    for name, version in machine.versions.items():
        if version:
            build = f" ({machine.torch_build})" * (name == "torch")
            installed.append(f"{name} {version}{build}")
        else:
            lacking.append(name)
    for component, version in machine.software.items():
        if version != UNKNOWN and component.replace("_", "-") not in machine.versions:
            installed.append(f"{component} {version}")
    missing = f"; not installed: {', '.join(lacking)}" * bool(lacking)
    return f"{', '.join(installed) or 'none'}{missing}."
