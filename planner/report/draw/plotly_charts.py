"""Figures of plotly as plain data: no plotly is imported, its JavaScript draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from planner.cost.terms import Estimate
from planner.layout import Layout
from planner.report.draw import gantt_chart
from planner.report.draw.chart import Chart
from planner.search import Computed
from planner.units import GIB

PALETTE = (
    "#4c78a8",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#72b7b2",
    "#b279a2",
    "#eeca3b",
    "#9d755d",
    "#ff9da6",
    "#8c8c8c",
    "#1f77b4",
    "#2ca02c",
    "#d67195",
    "#79706e",
    "#83bcb6",
    "#d8b5a5",
    "#439894",
    "#b79a20",
)
POINTS = 1500
"""Layouts drawn of a search: the front whole, of the others a sample."""
BARS = 6000
LEAST_SHARE = 0.003
"""Terms below this share of every bar are drawn as one, the rest."""
Named = Sequence[tuple[str, Estimate]]


def time_by_term(rows: Named) -> Chart:
    """Stacked bars: seconds of a step by term, one bar a layout."""
    figure = _stacked(rows, "time", "_s", 1.0, "s of a step", "s")
    return Chart(
        figure,
        "Where the time of a step goes, in seconds on the critical path of the slowest rank.",
        _bars_height(len(rows)),
    )


def memory_by_term(rows: Named) -> Chart:
    """Stacked bars: GiB of the worst stage by term; each GPU's limit as a mark."""
    figure = _stacked(rows, "memory", "_bytes", 1 / GIB, "GiB on the worst stage", "GiB")
    limits = [estimate.memory_limit_bytes / GIB for _, estimate in rows]
    figure["data"].append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "limit",
            "x": _round(limits),
            "y": [name for name, _ in rows],
            "marker": {
                "symbol": "line-ns-open",
                "size": 26,
                "color": "#e45756",
                "line": {"width": 3},
            },
            "hovertemplate": "limit: %{x:.1f} GiB<extra></extra>",
        }
    )
    few = sorted({f"{limit:.1f}" for limit in limits}, key=float)
    says = (
        "Device memory of the worst stage, in GiB; the red mark is what a GPU can give,"
        f" {' or '.join(few)} GiB."
    )
    return Chart(figure, says, _bars_height(len(rows)))


def memory_by_stage(estimate: Estimate) -> Chart:
    """GiB of every stage, the limit as a line."""
    limit = estimate.memory_limit_bytes / GIB
    held = [stage.memory_bytes / GIB for stage in estimate.stages]
    over = ["#e45756" if gib > limit else "#4c78a8" for gib in held]
    bars = {
        "type": "bar",
        "x": [stage.stage for stage in estimate.stages],
        "y": _round(held),
        "marker": {"color": over},
        "name": "memory",
        "hovertemplate": "stage %{x}: %{y:.2f} GiB<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "pipeline stage"}, "dtick": 1 if len(held) <= 24 else None},
        "yaxis": {"title": {"text": "GiB"}, "range": [0, max(limit, *held) * 1.08]},
        "showlegend": False,
        "shapes": [_line(x0=0, x1=1, xref="paper", y0=limit, y1=limit)],
    }
    return Chart(
        {"data": [bars], "layout": layout},
        f"Device memory of each pipeline stage; the line is the limit of {limit:.1f} GiB.",
    )


def search_cloud(
    computed: Computed, plans: Sequence[tuple[Layout, Estimate]], tokens: int, gpus: int
) -> Chart:
    """Throughput against memory of the layouts that were computed, by closed form, the Pareto
    front, and the plans as simulated.
    """
    rate, memory = tokens / computed.step_s / gpus, computed.memory_bytes / GIB
    front = _front(rate, memory)
    shown = _sample(len(rate), front)
    groups = (
        ("fits", computed.fits[shown], "#4c78a8"),
        ("does not fit", ~computed.fits[shown], "#c9ccd3"),
    )
    data = [
        _scatter(
            name,
            memory[rows],
            rate[rows],
            colour,
            [_knobs(computed.layout[int(row)]) for row in rows],
        )
        for name, chosen, colour in groups
        if len(rows := shown[chosen])
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            "x": _round(memory[front]),
            "y": _round(rate[front]),
            "line": {"color": "#f58518", "shape": "hv"},
            "hoverinfo": "skip",
        }
    )
    best = [
        (
            estimate.memory_bytes / GIB,
            estimate.tokens_per_s_per_gpu,
            f"plan {rank}: {_knobs(layout)}",
        )
        for rank, (layout, estimate) in enumerate(plans, 1)
    ]
    if best:
        x, y, words = zip(*best, strict=True)
        data.append(
            _scatter(
                "plans, simulated",
                np.array(x),
                np.array(y),
                "#e45756",
                list(words),
                size=11,
                symbol="diamond",
            )
        )
    layout = {
        "xaxis": {"title": {"text": "GiB on the worst stage"}, "type": "log"},
        "yaxis": {"title": {"text": "tokens/s a GPU"}},
        "hovermode": "closest",
    }
    left = f" {len(shown):,} of them are drawn." if len(shown) < len(rate) else ""
    says = (
        f"All {len(rate):,} legal layouts: throughput against memory; hover shows the layout.{left}"
    )
    return Chart({"data": data, "layout": layout}, says, 440)


def gantt(drawn: gantt_chart.Chart) -> Chart:
    """The schedule: a bar an action, its colour the kind; long ones are cut after their first
    actions.
    """
    order = np.argsort(drawn.start, kind="stable")[:BARS]
    data = []
    for kind in gantt_chart.kinds_shown(drawn):
        mine = order[drawn.kind[order] == kind]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": gantt_chart.KIND_NAMES[kind],
                "base": _round(drawn.start[mine]),
                "x": _round(drawn.end[mine] - drawn.start[mine]),
                "y": drawn.row[mine].tolist(),
                "text": [str(label) for label in drawn.label[mine]],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "constraintext": "inside",
                "offset": -0.4,
                "width": 0.8,
                "customdata": drawn.name[mine].tolist(),
                "marker": {
                    "color": [_rgb(gantt_chart.colour(kind, int(drawn.shade[at]))) for at in mine],
                    "line": {"width": 0},
                },
                "hovertemplate": (
                    f"%{{customdata}}: %{{base:.4g}} + %{{x:.4g}} {drawn.unit}<extra></extra>"
                ),
            }
        )
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": {"title": {"text": drawn.unit or "time, in units of one stage's work"}},
        "yaxis": {
            "title": {"text": drawn.row_name},
            "autorange": "reversed",
            "dtick": 1 if drawn.rows <= 32 else None,
        },
        "uniformtext": {"minsize": 8, "mode": "hide"},
    }
    cut = (
        f" The first {BARS:,} of {len(drawn.start):,} actions."
        if len(order) < len(drawn.start)
        else ""
    )
    return Chart(
        {"data": data, "layout": layout},
        f"{drawn.title}. {drawn.note}{cut}".strip(),
        min(160 + 34 * drawn.rows, 760),
    )


def predicted_against_measured(
    groups: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[str]]], unit: str = "s"
) -> Chart:
    """Measured on x, predicted on y, both logarithmic; on the diagonal the model is right. groups:
    name -> measured, predicted, words.
    """
    data: list[dict[str, Any]] = []
    for (name, (measured, predicted, says)), colour in zip(
        groups.items(), _colours(len(groups)), strict=True
    ):
        data.append(
            _scatter(name, np.array(measured), np.array(predicted), colour, list(says), size=5)
        )
    every = [x for measured, predicted, _ in groups.values() for x in (*measured, *predicted)]
    low, high = (min(every) * 0.8, max(every) * 1.25) if every else (0.1, 10.0)
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "equal",
            "x": [low, high],
            "y": [low, high],
            "hoverinfo": "skip",
            "line": {"color": "#8c8c8c", "dash": "dot"},
        }
    )
    axis = {"type": "log", "range": [float(np.log10(low)), float(np.log10(high))]}
    layout = {
        "xaxis": {**axis, "title": {"text": f"measured, {unit}"}},
        "yaxis": {**axis, "title": {"text": f"predicted, {unit}"}},
        "hovermode": "closest",
    }
    says = (
        f"Predicted against measured time of a step, {unit}; the dotted line is where they agree."
    )
    return Chart({"data": data, "layout": layout}, says, 520)


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x: str,
    y: str,
    caption: str,
    log_x: bool = False,
) -> Chart:
    """Curves with markers, one a name: scaling, sweeps, the best so far of trials."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": _round(xs),
            "y": _round(ys),
            "line": {"color": colour},
        }
        for (name, (xs, ys)), colour in zip(series.items(), _colours(len(series)), strict=True)
    ]
    layout = {
        "xaxis": {"title": {"text": x}, "type": "log" if log_x else "linear"},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
    return Chart({"data": data, "layout": layout}, caption)


def bars(
    names: Sequence[str], values: Sequence[float], x: str, caption: str, colour: str = "#4c78a8"
) -> Chart:
    """Horizontal bars with their values; the first on top."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(names),
            "x": _round(values),
            "marker": {"color": colour},
            "textposition": "auto",
            "text": [f"{value:,.4g}" for value in values],
            "hovertemplate": "%{y}: %{x:.4g}<extra></extra>",
        }
    ]
    layout = {
        "xaxis": {"title": {"text": x}},
        "yaxis": {"autorange": "reversed", "type": "category"},
        "showlegend": False,
    }
    return Chart({"data": data, "layout": layout}, caption, _bars_height(len(names)))


def _stacked(
    rows: Named, part: str, suffix: str, scale: float, axis: str, unit: str
) -> dict[str, Any]:
    """One horizontal bar a layout, one colour a term; terms that are small in every bar together as
    the rest.
    """
    names = [name for name, _ in rows]
    terms = {
        f.name: [float(getattr(getattr(estimate, part), f.name)) * scale for _, estimate in rows]
        for f in fields(getattr(rows[0][1], part))
    }
    totals = [sum(values) for values in zip(*terms.values(), strict=True)]
    large = {
        name: values
        for name, values in terms.items()
        if any(value > LEAST_SHARE * total for value, total in zip(values, totals, strict=True))
    }
    rest = [total - sum(values[at] for values in large.values()) for at, total in enumerate(totals)]
    if max(rest) > 1e-9:
        large["rest" + suffix] = rest
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name.removesuffix(suffix).replace("_", " "),
            "y": names,
            "x": _round(values),
            "marker": {"color": colour},
            "hovertemplate": f"%{{fullData.name}}: %{{x:.4g}} {unit}<extra></extra>",
        }
        for (name, values), colour in zip(large.items(), _colours(len(large)), strict=True)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": axis}},
        "yaxis": {"autorange": "reversed", "type": "category"},
    }
    return {"data": data, "layout": layout}


def _front(rate: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Layouts that no other beats in both: from the least memory on, each faster than all
    before.
    """
    order = np.lexsort((-rate, memory))
    best = np.maximum.accumulate(rate[order])
    return order[np.concatenate(([True], best[1:] > best[:-1]))] if len(order) else order


def _sample(count: int, front: np.ndarray) -> np.ndarray:
    """Rows to draw: the front, and evenly spaced ones of the others."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(
        np.concatenate(
            (
                front[:POINTS],
                np.linspace(0, count - 1, POINTS - min(len(front), POINTS)).astype(int),
            )
        )
    )


def degrees(layout: Layout, space: str = "") -> list[str]:
    """Degrees above 1 with their names."""
    words = []
    for name in ("tp", "pp", "dp", "cp", "ep", "v"):
        degree = getattr(layout, name)
        if degree > 1:
            words.append(f"{name}{space}{degree}")
    return words


def _knobs(layout: Layout) -> str:
    """A layout in a line, degrees of 1 left out."""
    return ", ".join(
        [
            *degrees(layout, " "),
            f"mbs {layout.mbs}",
            f"m {layout.m}",
            f"zero {layout.zero}",
            f"recompute {layout.recomputation}",
        ]
    )


def _scatter(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    colour: str,
    says: list[str],
    size: int = 6,
    symbol: str = "circle",
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": _round(x),
        "y": _round(y),
        "text": says,
        "marker": {"color": colour, "size": size, "symbol": symbol, "opacity": 0.8},
        "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
    }


def _line(**at: Any) -> dict[str, Any]:
    """A straight line in the colour of the text, which the page knows."""
    return {"type": "line", "line": {"color": "ink", "width": 2, "dash": "dash"}, **at}


def _colours(count: int) -> list[str]:
    return [PALETTE[at % len(PALETTE)] for at in range(count)]


def _bars_height(count: int) -> int:
    return 190 + 42 * count


def _round(values: Any) -> list[float]:
    """Five digits: what a picture shows, in a small file."""
    return [float(f"{float(value):.5g}") for value in values]


def _rgb(colour: tuple[int, int, int]) -> str:
    return f"rgb({colour[0]},{colour[1]},{colour[2]})"
