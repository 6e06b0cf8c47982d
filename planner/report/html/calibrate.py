"""The report of `ppplan calibrate`: what was measured against what the cost model makes of the
fitted profile.
"""

from __future__ import annotations

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
        tail = (("stderr", answer.outcome.stderr_tail),) * bool(answer.outcome.stderr_tail)
        more = (More("The last that it said", tail),)
        why = Section("Why", (f"{answer.outcome.reason}.",), more=more, alert=True)
        return Page("Nothing was measured", sections=(why,))
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
    rows = []
    for kind, columns in pairs.items():
        for measured, fitted, size in zip(*columns, strict=True):
            error = f"{fitted / measured - 1:+.1%}"
            rows.append((kind, size, f"{measured:,.4g}", f"{fitted:,.4g}", error))
    grid = Grid(("what", "size", "measured, us", "fitted, us", "error"), tuple(rows), 2)
    table = More("Every measurement", grid=grid)
    return [Section(title, charts=(chart,), more=(table,))]


def _sustained(profile: HardwareProfile) -> list[str]:
    share = profile.kernels.sustained_share
    text = f"Fitted times are those at sustained clocks, {share:.0%} of what short runs reach."
    return [text] * (share < 1)


def _add(pairs: Pairs, kind: str, measured_s: float, predicted_s: float, words: str) -> None:
    measured, predicted, says = pairs.setdefault(kind, ([], [], []))
    measured.append(measured_s * 1e6)
    predicted.append(predicted_s * 1e6)
    says.append(words)


def _products(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    """Of the precisions that the profile has: a processor slower in bf16 than in fp32 gets no
    bf16.
    """
    pairs: Pairs = {}
    for row in rows:
        precision, m, n, k = row["precision"], row["m"], row["n"], row["k"]
        if precision in profile.gpu.peak_tflops:
            predicted = float(kernels.gemm_s(profile, precision, m, n, k))
            _add(pairs, precision, row["seconds"], predicted, f"{m} x {n} x {k}")
    return pairs


def _attention(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    pairs: Pairs = {}
    for row in rows:
        batch, heads, seq, width = row["batch"], row["heads"], row["seq"], row["width"]
        forward = float(kernels.flash_attention_s(profile, batch, heads, seq, width))
        backward = float(kernels.flash_backward_s(profile, forward))
        words = f"batch {batch}, {heads} heads of {width}, {seq} tokens"
        _add(pairs, "forward", row["seconds"], forward, words)
        _add(pairs, "backward", row["backward_s"], backward, words)
    return pairs


def _memory(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    pairs: Pairs = {}
    for row in rows:
        predicted = float(kernels.memory_s(profile, row["bytes"]))
        words = f"{row['bytes']:,} bytes"
        _add(pairs, "sum of two vectors", row["seconds"], predicted, words)
    return pairs


def _links(profile: HardwareProfile, rows: list[dict[str, Any]]) -> Pairs:
    """Those that the cost model has a form for; a message's ranks are the two that send and
    receive.
    """
    pairs: Pairs = {}
    for row in rows:
        operation, ranks, size = row["op"], row["ranks"], row["bytes"]
        group = collectives.group(profile, 1, ranks, gpus=ranks)
        if operation == "all_reduce":
            predicted = collectives.all_reduce_s(profile, group, size)
        elif operation in ("all_gather", "reduce_scatter"):
            predicted = collectives.gather_s(profile, group, size)
        elif operation == "send_recv":
            predicted = collectives.send_s(profile, 1, 2, size)
        else:
            continue
        words = f"{ranks} ranks, {size:,} bytes"
        _add(pairs, operation.replace("_", " "), row["seconds"], float(predicted), words)
    return pairs
