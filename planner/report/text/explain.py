"""One layout in full: terms of time and memory, stage by stage, activations in flight, transfers,
formulas.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.answers import Explanation
from planner.cost.terms import Estimate, Memory, StepTime
from planner.layout import SCHEDULES
from planner.references import REFERENCES
from planner.report.formulas import Formula, cost_formulas, keys, meanings, module_formulas
from planner.report.text.parts import goodput, grid, more_assumed
from planner.units import GIB, MIB

MILLI = 1e3


def parts(answer: Explanation) -> list[Any]:
    """Everything below the layout's own line, but the formulas."""
    said = answer.estimate
    broken = [
        Text(f"Breaks a rule ({one.rule}): {one.message}", "bold red") for one in answer.breaches
    ]
    return [
        *broken,
        title("Time of a step"),
        time_table(said),
        title("Memory of the worst stage"),
        memory_table(said),
        *([title("Stage by stage"), stage_table(said)] if said.stages else []),
        title("Activations in flight"),
        in_flight_table(answer),
        in_flight_says(answer),
        title("Transfers between stages"),
        p2p_table(said),
        *more_assumed(answer.recipe, said),
        *goodput(answer.goodput),
    ]


def title(text: str) -> Text:
    return Text(f"\n{text}", "bold cyan")


def time_table(said: Estimate) -> Table:
    """Every term, in milliseconds and as a share; terms that are 0 are left out."""
    table = grid("term", "ms", "share", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    means = meanings(StepTime)
    for f in fields(said.time):
        value = getattr(said.time, f.name)
        if value:
            table.add_row(
                f.name.removesuffix("_s"),
                f"{value * MILLI:,.1f}",
                f"{value / said.step_s:.1%}",
                means[f.name],
            )
    spread = (
        f"80% of runs like it: {said.step_s_low * MILLI:,.0f} to {said.step_s_high * MILLI:,.0f} ms"
    )
    table.add_row("step", f"{said.step_s * MILLI:,.1f}", "100%", spread, style="bold")
    return table


def memory_table(said: Estimate) -> Table:
    table = grid("term", "GiB", "share", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    means = meanings(Memory)
    for f in fields(said.memory):
        value = getattr(said.memory, f.name)
        if value:
            table.add_row(
                f.name.removesuffix("_bytes"),
                f"{value / GIB:.2f}",
                f"{value / said.memory_bytes:.1%}",
                means[f.name],
            )
    limit = (
        f"of {said.memory_limit_bytes / GIB:.2f} GiB usable: out of memory with probability"
        f" {said.oom_probability:.0%}"
    )
    table.add_row("device", f"{said.memory_bytes / GIB:.2f}", "100%", limit, style="bold")
    return table


def stage_table(said: Estimate) -> Table:
    table = grid(
        "stage",
        "layers",
        "parameters a GPU",
        "forward ms",
        "backward ms",
        "in flight",
        "memory GiB",
    )
    for stage in said.stages:
        table.add_row(
            str(stage.stage),
            str(stage.layers),
            f"{stage.params:,}",
            f"{stage.forward_s * MILLI:.3f}",
            f"{stage.backward_s * MILLI:.3f}",
            f"{stage.in_flight:.2f}",
            f"{stage.memory_bytes / GIB:.2f}",
        )
    return table


def in_flight_table(answer: Explanation) -> Table:
    """This plan's schedule beside the plain ones on the same layout: O(p) of 1F1B, O(m) of
    GPipe.
    """
    table = grid(
        "schedule", "in flight", "activations GiB", "memory GiB", "limit GiB", "bubble", "step s"
    )
    layout = answer.layout
    held = max((stage.in_flight for stage in answer.estimate.stages), default=0.0)
    own = (f"{SCHEDULES[layout.schedule]}, v {layout.v} (this plan)", held, answer.estimate)
    plain = [
        one for one in answer.beside if (one.schedule, 1) != (SCHEDULES[layout.schedule], layout.v)
    ]
    for name, in_flight, said in (
        own,
        *((f"{one.schedule}, v 1", one.in_flight, one.estimate) for one in plain),
    ):
        table.add_row(
            name,
            f"{in_flight:.2f}",
            f"{said.memory.activations_bytes / GIB:,.2f}",
            f"{said.memory_bytes / GIB:,.2f}",
            f"{said.memory_limit_bytes / GIB:.2f}",
            f"{said.bubble_share:z.1%}",
            f"{said.step_s:.3f}",
        )
    return table


def in_flight_says(answer: Explanation) -> Text:
    p, m = answer.layout.pp, answer.layout.m
    plain = f"min(m, p) = min({m}, {p}) = {min(m, p)} micro-batch{'es' * (min(m, p) > 1)}"
    return Text(f"The first stage holds {plain} under 1F1B, O(p); m = {m} under GPipe, O(m).")


def p2p_table(said: Estimate) -> Table:
    table = grid(
        "activation tensors a step", "MiB a tensor", "MiB a link, one way, a step", "MiB a step"
    )
    sizes = (said.p2p.bytes_per_tensor, said.p2p.bytes_per_link_per_step, said.p2p.bytes_per_step)
    table.add_row(f"{said.p2p.tensors_per_step:,.0f}", *(f"{size / MIB:,.2f}" for size in sizes))
    return table


def formulas(answer: Explanation) -> list[Any]:
    """What each figure is computed by, out of the code itself, and the works cited."""
    from planner.schedules.table import SCHEDULES as modules

    schedule = modules.get(SCHEDULES[answer.layout.schedule])
    return written([*cost_formulas(), *(module_formulas(schedule) if schedule else ())])


def written(found: list[Formula]) -> list[Any]:
    """Formulas, and the works that they cite."""
    cited = dict.fromkeys(key for one in found for key in keys(one.source))
    sources = [
        Text.assemble((f"[{key}] ", "bold"), REFERENCES[key]) for key in cited if key in REFERENCES
    ]
    return [title("Formulas"), *(formula(one) for one in found), title("Sources"), *sources]


def formula(one: Formula) -> Group:
    """A formula with its source and its assumptions, indented below its name."""
    head = (f"{one.room}.{one.name}", "bold")
    titled = (
        Text.assemble(head, f": {one.says}")
        if not one.says.startswith("Formula:")
        else Text.assemble(head)
    )
    said = [("Source: ", one.source), ("Assumes: ", one.assumes)]
    below = [
        Text(f"= {one.formula}"),
        *(Text(f"{label}{text}", "dim") for label, text in said if text),
    ]
    return Group(titled, *(Padding(line, (0, 0, 0, 2), expand=False) for line in below))
