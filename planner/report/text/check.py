"""The answer of `check` for a person: the verdict first, then findings by severity, then
numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from planner.advice.findings import Checked, Finding
from planner.advice.flag_names import flag_line
from planner.cost.terms import Estimate
from planner.layout import SCHEDULES, Layout
from planner.report.text.parts import by_kind, heading, paragraph, plans
from planner.report.text.schedule_options import tabled
from planner.units import GIB

STYLE = {"error": "bold red", "warning": "yellow", "hint": "cyan"}
VERDICTS = {
    "invalid": ("It will not run", "bold red"),
    "oom": ("It will run out of memory", "bold red"),
    "marginal": ("It may run out of memory", "bold yellow"),
    "fits": ("It runs and fits", "bold green"),
}


def text(answer: Checked) -> Group:
    """What `check` prints, but for the differences of --fix: a patch is no text to be wrapped."""
    launch = answer.launch
    parts: list[Any] = [_verdict(answer)]
    if launch.sized:
        parts.append(heading(launch.recipe))
    parts += [_finding(finding, launch.reading.kind) for finding in answer.findings]
    if answer.estimate is not None:
        proved = answer.measured is not None and "proof" in answer.measured
        rows = [("predicted" if proved else "stated", launch.layout, answer.estimate)]
        if answer.best:
            rows.append(("best", answer.best.layout, answer.best.estimate))
        parts += [plans(rows), *_stages(answer.estimate)]
        parts += by_kind(launch.recipe, launch.layout)
    if answer.schedules:
        heading_text = Text("The stated layout (*) under each schedule:", "bold")
        parts += [heading_text, *tabled(answer.schedules)]
    if answer.switches:
        parts.append(paragraph("Switches", f"on: {answer.switches}."))
    parts += [*_oom(answer), *_measured(answer), *_open(answer), _values(answer)]
    if answer.fixed:
        parts.append(paragraph("Written", ", ".join(answer.fixed)))
    return Group(*parts)


def verdict_says(answer: Checked) -> tuple[str, str]:
    """The verdict in words, and its style."""
    text, style = VERDICTS[answer.verdict]
    if answer.verdict == "oom" and answer.ran_out:
        return "It ran out of memory", style
    if answer.guessed:
        return "It ran", style
    if answer.verdict == "fits" and answer.estimate is None:
        text = "Nothing that it states is refused; whether it fits is not known"
    if answer.oom_probability is not None and answer.verdict in ("oom", "marginal"):
        text += f" with probability {answer.oom_probability:.0%}"
    return text, style


def _verdict(answer: Checked) -> Text:
    launch = answer.launch
    layout = ", layout not known" if answer.guessed else f" = {_split(launch.layout)}"
    return Text.assemble(
        verdict_says(answer),
        f": {answer.file} ({launch.reading.kind}, {launch.recipe.framework} "
        f"{launch.recipe.framework_version}), {launch.recipe.gpus:,} GPUs{layout}",
    )


def _split(layout: Layout) -> str:
    cp = f" x cp {layout.cp}" * (layout.cp > 1)
    return f"tp {layout.tp} x pp {layout.pp} x dp {layout.dp}{cp}, {SCHEDULES[layout.schedule]}"


def _finding(finding: Finding, kind: str) -> Group:
    head = Text.assemble(
        (f"{finding.severity}: ", STYLE[finding.severity]),
        (finding.rule, "bold"),
        f". {finding.message}.",
    )
    if not finding.ways or not finding.ways[0].values:
        return Group(head)
    fix = Text.assemble(("fix: ", "bold"), flag_line(kind, finding.ways[0].values))
    return Group(head, Padding(fix, (0, 0, 0, 2), expand=False))


def _stages(estimate: Estimate) -> list[Any]:
    if len(estimate.stages) < 2:
        return []
    listed = ", ".join(
        f"{stage.stage}: {stage.memory_bytes / GIB:.1f}" for stage in estimate.stages[:32]
    )
    return [
        paragraph("Memory by stage", f"{listed} GiB of {estimate.memory_limit_bytes / GIB:.1f}.")
    ]


def _oom(answer: Checked) -> list[Any]:
    if answer.oom is None:
        return []
    lines = [
        f"{match['tensor']}: {match['arithmetic']}" + " (near)" * (not match["exact"])
        for match in answer.oom["matches"]
    ]
    none = answer.oom.get("says", "a size that no tensor of this launch has")
    return [paragraph("The message asks for", "; ".join(lines) or none)]


def _measured(answer: Checked) -> list[Any]:
    if not answer.measured:
        return []
    listed = "; ".join(
        f"{name} {value:.4g}"
        for name, value in answer.measured.items()
        if isinstance(value, (int, float))
    )
    return [paragraph("Measured", listed)]


def _open(answer: Checked) -> list[Any]:
    launch = answer.launch
    texts = {
        "Not known": "; ".join(f"{value.name}: {value.why}" for value in launch.unresolved),
        "Unknown flags": ", ".join(launch.reading.unknown[:20]),
        "Read": "; ".join(launch.reading.notes[:8]),
    }
    return [paragraph(label, text) for label, text in texts.items() if text]


def _values(answer: Checked) -> Text:
    counts = Counter(value.origin for value in answer.launch.values.values())
    listed = ", ".join(f"{count} by {origin}" for origin, count in counts.items())
    return paragraph("Values", f"{listed}; --json says where each is from.")
