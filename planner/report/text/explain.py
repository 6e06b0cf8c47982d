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
from planner.report.text.parts import (
    by_kind,
    goodput,
    grid,
    heading,
    more_assumed,
    plans,
    splits,
    title,
    unusual,
)
from planner.report.text.recommend import numerics
from planner.report.text.schedule_options import tabled
from planner.specs.switches.lossy import BENCHMARK
from planner.specs.switches.table import BY_FRAMEWORK, settings_of, shown
from planner.switch_gains import PAYS, saving
from planner.units import GIB, MIB

MILLI = 1e3
TermRow = tuple[str, str, str, str]
"""Of a term its name, what it is, its value, its share."""
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
    stages: list[Any] = []
    if estimate.stages:
        stages = [title("Stage by stage"), stage_table(estimate)]
    stages += by_kind(answer.recipe, answer.layout)
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
        title("Switches of the software"),
        switch_table(answer),
        *under_each_schedule(answer),
        title("Transfers between stages"),
        p2p_table(estimate),
        *numerics(answer.held),
        *more_assumed(answer.recipe, estimate),
        *goodput(answer.goodput),
        *(written(*used_formulas(answer)) if formulas else ()),
    )


def time_table(estimate: Estimate) -> Table:
    """Every term, in milliseconds and as a share; terms that are 0 are left out."""
    low, high = estimate.step_s_low * MILLI, estimate.step_s_high * MILLI
    spread = f"80% of runs like it: {low:,.0f} to {high:,.0f} ms"
    return _term_table("ms", time_rows(estimate), spread)


def memory_table(estimate: Estimate) -> Table:
    limit = (
        f"of {estimate.memory_limit_bytes / GIB:.2f} GiB usable: out of memory with probability"
        f" {estimate.oom_probability:.0%}"
    )
    return _term_table("GiB", memory_rows(estimate), limit)


def _term_table(unit: str, rows: list[TermRow], note: str) -> Table:
    """The terms, and in bold their sum with a note."""
    table = grid("term", unit, "share", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for name, meaning, value, share in rows[:-1]:
        table.add_row(name, value, share, meaning)
    name, _, value, share = rows[-1]
    table.add_row(name, value, share, note, style="bold")
    return table


def time_rows(estimate: Estimate) -> list[TermRow]:
    """The terms of the step in milliseconds that are not 0, last the step."""
    return _term_rows(estimate.time, "step", float(estimate.step_s), MILLI, ",.1f")


def memory_rows(estimate: Estimate) -> list[TermRow]:
    """The terms of the worst stage's memory in GiB that are not 0, last the device's."""
    return _term_rows(estimate.memory, "device", float(estimate.memory_bytes), 1 / GIB, ".2f")


def _term_rows(
    terms: StepTime | Memory, sum_name: str, total: float, scale: float, digits: str
) -> list[TermRow]:
    means = meanings(type(terms))
    rows = []
    for field in fields(terms):
        value = float(getattr(terms, field.name))
        if value:
            name = field.name.rpartition("_")[0]
            figure = f"{value * scale:{digits}}"
            rows.append((name, means[field.name], figure, f"{value / total:.1%}"))
    return [*rows, (sum_name, "", f"{total * scale:{digits}}", "100%")]


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
    for row in stage_rows(estimate):
        table.add_row(*row)
    return table


def stage_rows(estimate: Estimate) -> list[tuple[str, ...]]:
    """Stage, layers, parameters a GPU, forward and backward ms, stages in flight, memory GiB."""
    return [
        (
            str(stage.stage),
            str(stage.layers),
            f"{stage.params:,}",
            f"{stage.forward_s * MILLI:.3f}",
            f"{stage.backward_s * MILLI:.3f}",
            f"{stage.in_flight:.2f}",
            f"{stage.memory_bytes / GIB:.2f}",
        )
        for stage in estimate.stages
    ]


def switch_table(answer: Explanation) -> Table:
    """What acts in the layout: its value, what that or another one saves, else what it does."""
    table = grid("switch", "value", "what it is worth, or does")
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "left", False
    for row in switch_rows(answer):
        table.add_row(*row)
    return table


def switch_rows(answer: Explanation) -> list[tuple[str, str, str]]:
    """Switch, value, and the seconds and GiB that it saves against its first value and that another
    would save; where there are none, its sentence.
    """
    recipe, layout = answer.recipe, answer.layout
    least = PAYS * float(answer.estimate.step_s)
    rows = []
    for name, value in settings_of(recipe.software).items():
        switch = BY_FRAMEWORK[recipe.framework][name]
        unset = value == switch.first and (not switch.values or switch.arithmetic == BENCHMARK)
        if unset or not switch.exists(recipe, layout) & switch.acts(recipe, layout):
            continue
        gains = [gain for gain in answer.switches if gain.name == name]
        worth = [
            f"saves {saving(-gain.saved_s, -gain.saved_gib)}"
            for gain in gains
            if gain.off and gain.saved_s < 0
        ]
        better = max(gains, key=lambda gain: gain.saved_s, default=None)
        if better and better.saved_s > least:
            doubt = better.doubt + ", and changes the numbers" * (not better.keeps_arithmetic)
            saves = saving(better.saved_s, better.saved_gib)
            worth.append(f"{shown(better.value)} would save {saves}{doubt}")
        rows.append((name, shown(value), "; ".join(worth) or switch.help))
    return rows


def under_each_schedule(answer: Explanation) -> list[Any]:
    """Seconds beside activations in flight: O(p) of 1F1B, O(m) of GPipe."""
    if not answer.schedules:
        return []
    return [
        title("The layout (*) under each schedule"),
        *tabled(answer.schedules),
        Text(in_flight(answer)),
    ]


def in_flight(answer: Explanation) -> str:
    """Micro-batches that the first stage holds under 1F1B and under GPipe."""
    p, m = answer.layout.pp, answer.layout.m
    fewer = min(m, p)
    plain = f"min(m, p) = min({m}, {p}) = {fewer} micro-batch{'es' * (fewer > 1)}"
    return f"The first stage holds {plain} under 1F1B, O(p); m = {m} under GPipe, O(m)."


def p2p_table(estimate: Estimate) -> Table:
    table = grid(
        "activation tensors a step", "MiB a tensor", "MiB a link, one way, a step", "MiB a step"
    )
    p2p = estimate.p2p
    table.add_row(
        f"{p2p.tensors_per_step:,.0f}",
        f"{p2p.bytes_per_tensor / MIB:,.2f}",
        f"{p2p.bytes_per_link_per_step / MIB:,.2f}",
        f"{p2p.bytes_per_step / MIB:,.2f}",
    )
    return table


def used_formulas(answer: Explanation) -> tuple[list[Formula], str]:
    """The formulas that made the figures, out of the code itself, and a sentence on what was
    simulated.
    """
    formulas, simulated = formulas_of(lambda: estimate(answer.recipe, answer.layout, exact=True))
    schedule = SCHEDULES[answer.layout.schedule]
    return formulas, SIMULATED.format(schedule=schedule) if simulated else ""


def written(formulas: list[Formula], note: str = "") -> list[Any]:
    """Formulas below a note, and the works that they cite."""
    lines: list[Any] = [title("Formulas")]
    if note:
        lines.append(Text(note))
    lines += map(_formula, formulas)
    lines.append(title("Sources"))
    for key in dict.fromkeys(keys(" ".join(formula.source for formula in formulas))):
        if key in REFERENCES:
            lines.append(Text.assemble((f"[{key}] ", "bold"), REFERENCES[key]))
    return lines


def _formula(formula: Formula) -> Group:
    """A formula with its source and its assumptions, indented below its name."""
    head = Text(f"{formula.room}.{formula.name}", "bold")
    if not formula.says.startswith("Formula:"):
        head = Text.assemble(head, f": {formula.says}")
    lines = [Text(f"= {formula.formula}")]
    if formula.source:
        lines.append(Text(f"Source: {formula.source}", "dim"))
    if formula.assumes:
        lines.append(Text(f"Assumes: {formula.assumes}", "dim"))
    return Group(head, *(Padding(line, (0, 0, 0, 2), expand=False) for line in lines))
