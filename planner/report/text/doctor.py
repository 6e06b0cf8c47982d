"""The answer of `doctor` as text: what this machine has, and what would work on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from planner.units import GIB

if TYPE_CHECKING:
    from planner.launch.capabilities import Able, Diagnosis
    from planner.launch.machine import Machine


def text(answer: Diagnosis) -> Any:
    """A rich renderable."""
    from rich.console import Group

    from planner.report.text.parts import bullets, paragraph

    machine, near = answer.machine, answer.nearest
    said: list[Any] = [
        paragraph(
            "Machine",
            f"{machine.host}, {machine.system}, {machine.cores} cores,"
            f" {machine.memory_bytes / GIB:.0f} GiB of memory ({machine.available_bytes / GIB:.0f}"
            f" free), Python {machine.python}.",
        ),
        paragraph("GPUs", _gpus(machine)),
        paragraph("Versions", _versions(machine)),
        paragraph("Nearest cluster", f"{near.cluster or 'none'}: {near.why}."),
    ]
    warned: list[Any] = [paragraph("Mind", ""), bullets(answer.warnings)] if answer.warnings else []
    return Group(
        *said,
        paragraph("Runners of tune", ""),
        _table(answer.runners),
        paragraph("Launchers of tune", ""),
        _table(answer.launchers),
        *warned,
    )


def _table(rows: Iterable[Able]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for one in rows:
        table.add_row(" ", one.name, "works" if one.works else "no", one.why)
    return table


def _gpus(machine: Machine) -> str:
    if not machine.gpus:
        return f"none ({machine.no_gpus})."
    kinds: dict[tuple[str, int], int] = {}
    for gpu in machine.gpus:
        kind = (gpu.name, round(gpu.memory_bytes / GIB))
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = ", ".join(
        f"{count} x {name}, {size} GiB each" for (name, size), count in kinds.items()
    )
    driver = f"; driver {machine.gpus[0].driver}" if machine.gpus[0].driver else ""
    return f"{listed}{driver}{_links(machine)}."


def _links(machine: Machine) -> str:
    if machine.links is None or not machine.links.kinds:
        return ""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(machine.links.kinds.items()))
    joined = (
        f"NVLink joins {machine.links.domain_gpus} of them"
        if machine.links.domain_gpus > 1
        else "no NVLink"
    )
    return f"; {joined} (pairs: {kinds})"


def _versions(machine: Machine) -> str:
    there = [
        f"{name} {version}" + (f" ({machine.torch_build})" if name == "torch" else "")
        for name, version in machine.versions.items()
        if version
    ]
    lacking = [name for name, version in machine.versions.items() if not version]
    return (
        ", ".join(there or ["none"])
        + (f"; not installed: {', '.join(lacking)}" if lacking else "")
        + "."
    )
