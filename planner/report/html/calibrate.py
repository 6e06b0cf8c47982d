"""The report of `ppplan calibrate`: what was measured against what the cost model makes of the
fitted profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from planner.calibrate.calibrate import Calibration
from planner.cost.layer import kernels
from planner.cost.network import collectives
from planner.report.draw import plotly_charts
from planner.report.draw.chart import Chart
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text import calibrate
from planner.specs.hardware import HardwareProfile

Pairs = dict[str, tuple[list[float], list[float], list[str]]]
"""Of each kind: measured and predicted microseconds, and what each point is in words."""


def page(answer: Calibration) -> Page:
    """Main figures, errors of the fits, and every measurement: products, attention, memory, links.
    Where nothing was measured, why.
    """
    profile, result = answer.profile, answer.outcome.result
    if profile is None or result is None:
        tail = (
            (More("The last that it said", (("stderr", answer.outcome.stderr_tail),)),)
            if answer.outcome.stderr_tail
            else ()
        )
        return Page(
            "Nothing was measured",
            (),
            (),
            (Section("Why", (f"{answer.outcome.reason}.",), more=tail, alert=True),),
        )
    errors = Grid(
        ("fit", "median error"),
        tuple((name, f"{error:.1%}") for name, error in answer.fit_error.items()),
    )
    sections = (
        Section("Errors of the fits", grid=errors),
        *_drawn("Products of matrices", _products(profile, result["gemm"])),
        *_drawn("Attention", _attention(profile, result["attention"])),
        *_drawn("Memory", _memory(profile, result["memory"])),
        *_drawn("Collectives and messages", _links(profile, result["collectives"])),
        Section("Sources", (f"{profile.kernels.source}.", *_sustained(profile))),
    )
    lead = (
        (
            f"{answer.file}, from {answer.measurements:,} measurements; `--cluster {answer.file}`"
            " uses it."
        ),
    )
    return Page(
        f"{profile.name}: {profile.gpu.name}", lead, tuple(calibrate.figures(profile)), sections
    )


def _drawn(title: str, pairs: Pairs) -> list[Section]:
    """The chart of some kinds and, behind a click, every point; nothing of a kind that was not
    measured.
    """
    if not pairs:
        return []
    drawn = plotly_charts.predicted_against_measured(pairs, "us")
    chart = Chart(
        drawn.figure,
        "Microseconds that the fitted profile gives against those measured; the dotted line is"
        " where they agree.",
        drawn.height,
    )
    rows = tuple(
        (kind, what, f"{measured:,.4g}", f"{predicted:,.4g}", f"{predicted / measured - 1:+.1%}")
        for kind, columns in pairs.items()
        for measured, predicted, what in zip(*columns, strict=True)
    )
    table = More(
        "Every measurement",
        grid=Grid(("what", "size", "measured, us", "fitted, us", "error"), rows, 2),
    )
    return [Section(title, charts=(chart,), more=(table,))]


def _sustained(profile: HardwareProfile) -> list[str]:
    share = profile.kernels.sustained_share
    return (
        [f"Fitted times are those at sustained clocks, {share:.0%} of what short runs reach."]
        if share < 1
        else []
    )


def _paired(rows: Iterable[tuple[str, float, float, str]]) -> Pairs:
    """rows: kind, measured and predicted seconds, words."""
    out: Pairs = {}
    for kind, measured, predicted, words in rows:
        columns = out.setdefault(kind, ([], [], []))
        columns[0].append(measured * 1e6)
        columns[1].append(predicted * 1e6)
        columns[2].append(words)
    return out


def _products(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    """Of the precisions that the profile has: a processor slower in bf16 than in fp32 gets no
    bf16.
    """
    known = [row for row in rows if row["precision"] in profile.gpu.peak_tflops]

    def seconds(row: Mapping[str, Any]) -> float:
        return float(kernels.gemm_s(profile, row["precision"], row["m"], row["n"], row["k"]))

    return _paired(
        (row["precision"], row["seconds"], seconds(row), f"{row['m']} x {row['n']} x {row['k']}")
        for row in known
    )


def _attention(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    def both(row: Mapping[str, Any]) -> Iterable[tuple[str, float, float, str]]:
        forward = float(
            kernels.flash_attention_s(profile, row["batch"], row["heads"], row["seq"], row["width"])
        )
        words = f"batch {row['batch']}, {row['heads']} heads of {row['width']}, {row['seq']} tokens"
        yield "forward", row["seconds"], forward, words
        yield (
            "backward",
            row["backward_s"],
            float(kernels.flash_backward_s(profile, forward)),
            words,
        )

    return _paired(one for row in rows for one in both(row))


def _memory(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    return _paired(
        (
            "sum of two vectors",
            row["seconds"],
            float(kernels.memory_s(profile, row["bytes"])),
            f"{row['bytes']:,} bytes",
        )
        for row in rows
    )


def _links(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    """Those that the cost model has a form for; a message's ranks are the two that send and
    receive.
    """
    forms: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "all_reduce": lambda row: collectives.all_reduce_s(
            profile, _group(profile, row), row["bytes"]
        ),
        "all_gather": lambda row: collectives.gather_s(profile, _group(profile, row), row["bytes"]),
        "reduce_scatter": lambda row: collectives.gather_s(
            profile, _group(profile, row), row["bytes"]
        ),
        "send_recv": lambda row: collectives.send_s(profile, 1, 2, row["bytes"]),
    }
    known = [row for row in rows if row["op"] in forms]
    return _paired(
        (row["op"].replace("_", " "), row["seconds"], float(forms[row["op"]](row)), _message(row))
        for row in known
    )


def _message(row: Mapping[str, Any]) -> str:
    return f"{row['ranks']} ranks, {row['bytes']:,} bytes"


def _group(profile: HardwareProfile, row: Mapping[str, Any]) -> collectives.Group:
    return collectives.group(profile, 1, row["ranks"], gpus=row["ranks"])
