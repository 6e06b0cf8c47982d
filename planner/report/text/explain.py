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
from planner.estimate import estimate
from planner.layout import SCHEDULES
from planner.references import REFERENCES
from planner.report.formulas import Formula, formulas_of, keys, meanings
from planner.report.text.parts import goodput, grid, heading, more_assumed, plans, splits, unusual
from planner.units import GIB, MIB

MILLI = 1e3
SIMULATED = (
    "Bubble, transfers between stages and activations in flight are simulated"
    " (planner.simulator.simulate) from the order of {schedule}, not given by a closed form."
)


def text(answer: Explanation, formulas: bool = True) -> Group:
    """The layout's line, its terms, and the formulas behind them."""
    estimate = answer.estimate
    broken = [
        Text(f"Breaks a rule ({breach.rule}): {breach.message}", "bold red")
        for breach in answer.breaches
    ]
    stages: list[Any] = [title("Stage by stage"), stage_table(estimate)] if estimate.stages else []
    return Group(
        heading(answer.recipe),
        plans([(unusual(answer.layout), answer.layout, estimate)]),
        *splits(answer.recipe, [("", answer.layout)]),
        *broken,
        title("Time of a step"),
        time_table(estimate),
        title("Memory of the worst stage"),
        memory_table(estimate),
        *stages,
        title("Activations in flight"),
        in_flight_table(answer),
        Text(in_flight(answer)),
        title("Transfers between stages"),
        p2p_table(estimate),
        *more_assumed(answer.recipe, estimate),
        *goodput(answer.goodput),
        *(written(*used_formulas(answer)) if formulas else ()),
    )


def title(text: str) -> Text:
    return Text(f"\n{text}", "bold cyan")


def time_table(estimate: Estimate) -> Table:
    """Every term, in milliseconds and as a share; terms that are 0 are left out."""
    table = grid("term", "ms", "share", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    means = meanings(StepTime)
    for f in fields(estimate.time):
        value = getattr(estimate.time, f.name)
        if value:
            table.add_row(
                f.name.removesuffix("_s"),
                f"{value * MILLI:,.1f}",
                f"{value / estimate.step_s:.1%}",
                means[f.name],
            )
    low, high = estimate.step_s_low * MILLI, estimate.step_s_high * MILLI
    spread = f"80% of runs like it: {low:,.0f} to {high:,.0f} ms"
    table.add_row("step", f"{estimate.step_s * MILLI:,.1f}", "100%", spread, style="bold")
    return table


def memory_table(estimate: Estimate) -> Table:
    table = grid("term", "GiB", "share", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    means = meanings(Memory)
    for f in fields(estimate.memory):
        value = getattr(estimate.memory, f.name)
        if value:
            table.add_row(
                f.name.removesuffix("_bytes"),
                f"{value / GIB:.2f}",
                f"{value / estimate.memory_bytes:.1%}",
                means[f.name],
            )
    limit = (
        f"of {estimate.memory_limit_bytes / GIB:.2f} GiB usable: out of memory with probability"
        f" {estimate.oom_probability:.0%}"
    )
    table.add_row("device", f"{estimate.memory_bytes / GIB:.2f}", "100%", limit, style="bold")
    return table


def stage_table(estimate: Estimate) -> Table:
    table = grid(
        "stage",
        "layers",
        "parameters a GPU",
        "forward ms",
        "backward ms",
        "in flight",
        "memory GiB",
    )
    for stage in estimate.stages:
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
    for name, in_flight, row_estimate in (
        own,
        *((f"{one.schedule}, v 1", one.in_flight, one.estimate) for one in plain),
    ):
        table.add_row(
            name,
            f"{in_flight:.2f}",
            f"{row_estimate.memory.activations_bytes / GIB:,.2f}",
            f"{row_estimate.memory_bytes / GIB:,.2f}",
            f"{row_estimate.memory_limit_bytes / GIB:.2f}",
            f"{row_estimate.bubble_share:z.1%}",
            f"{row_estimate.step_s:.3f}",
        )
    return table


def in_flight(answer: Explanation) -> str:
    """Micro-batches that the first stage holds under 1F1B and under GPipe."""
    p, m = answer.layout.pp, answer.layout.m
    plain = f"min(m, p) = min({m}, {p}) = {min(m, p)} micro-batch{'es' * (min(m, p) > 1)}"
    return f"The first stage holds {plain} under 1F1B, O(p); m = {m} under GPipe, O(m)."


def p2p_table(estimate: Estimate) -> Table:
    table = grid(
        "activation tensors a step", "MiB a tensor", "MiB a link, one way, a step", "MiB a step"
    )
    sizes = (
        estimate.p2p.bytes_per_tensor,
        estimate.p2p.bytes_per_link_per_step,
        estimate.p2p.bytes_per_step,
    )
    table.add_row(
        f"{estimate.p2p.tensors_per_step:,.0f}", *(f"{size / MIB:,.2f}" for size in sizes)
    )
    return table


def used_formulas(answer: Explanation) -> tuple[list[Formula], str]:
    """The formulas that made the figures, out of the code itself, and a sentence on what was
    simulated.
    """
    formulas, simulated = formulas_of(lambda: estimate(answer.recipe, answer.layout, exact=True))
    schedule = SCHEDULES[answer.layout.schedule]
    return formulas, SIMULATED.format(schedule=schedule) if simulated else ""


def written(found: list[Formula], note: str = "") -> list[Any]:
    """Formulas below a note, and the works that they cite."""
    cited = dict.fromkeys(key for one in found for key in keys(one.source))
    sources = [
        Text.assemble((f"[{key}] ", "bold"), REFERENCES[key]) for key in cited if key in REFERENCES
    ]
    head = [title("Formulas"), *([Text(note)] if note else [])]
    return [*head, *(formula(one) for one in found), title("Sources"), *sources]


def formula(formula: Formula) -> Group:
    """A formula with its source and its assumptions, indented below its name."""
    head = (f"{formula.room}.{formula.name}", "bold")
    titled = (
        Text.assemble(head, f": {formula.says}")
        if not formula.says.startswith("Formula:")
        else Text.assemble(head)
    )
    said = [("Source: ", formula.source), ("Assumes: ", formula.assumes)]
    below = [
        Text(f"= {formula.formula}"),
        *(Text(f"{label}{text}", "dim") for label, text in said if text),
    ]
    return Group(titled, *(Padding(line, (0, 0, 0, 2), expand=False) for line in below))
