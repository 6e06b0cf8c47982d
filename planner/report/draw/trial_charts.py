"""Figures of a study's trials, of plotly as plain data: what Optuna's own plots show, drawn without
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.report.draw.chart import Chart


def parallel(
    axes: Mapping[str, Sequence[Any]], steps: Sequence[float], says: Sequence[str]
) -> Chart:
    """A line a trial over its knobs, each scaled between its least and its largest value; the
    faster, the bluer.
    """
    scaled = {name: _scaled(values) for name, values in axes.items()} | {"step": _scaled(steps)}
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": says[at],
            "x": list(scaled),
            "y": [_short(row[at]) for row in scaled.values()],
            "line": {"color": _between(scaled["step"][at]), "width": 1.5},
            "showlegend": False,
            "text": (
                [f"{name} {values[at]}" for name, values in axes.items()] + [f"{steps[at]:.4g} s"]
            ),
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        }
        for at in np.argsort(steps)[::-1].tolist()
    ]
    layout = {
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "least to largest"}, "showticklabels": False},
        "hovermode": "closest",
    }
    caption = (
        "Every timed trial as a line over its knobs, from the least to the largest value of each;"
        " blue lines are fast, red ones slow."
    )
    return Chart({"data": data, "layout": layout}, caption, 400)


def _scaled(values: Sequence[Any]) -> list[float]:
    """The place of each among the different values, 0 to 1; numbers of a step by their size."""
    if all(isinstance(value, float) for value in values):
        low, high = min(values), max(values)
        return [(value - low) / ((high - low) or 1.0) for value in values]
    order = sorted(set(values), key=lambda value: (str(type(value)), value))
    return [order.index(value) / max(len(order) - 1, 1) for value in values]


def _between(share: float) -> str:
    """Blue at 0, red at 1."""
    return f"rgb({round(76 + 152 * share)},{round(120 - 33 * share)},{round(168 - 87 * share)})"


def slice_of(name: str, points: Sequence[Sequence[Any]]) -> Chart:
    """The steps of trials over one knob."""
    numbers = all(isinstance(value, int | float) for value, _ in points)
    xs = [value for value, _ in points] if numbers else [str(value) for value, _ in points]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": xs,
            "y": [_short(step) for _, step in points],
            "marker": {"color": "#4c78a8", "size": 8, "opacity": 0.7},
            "hovertemplate": "%{x}: %{y:.4g} s<extra></extra>",
        }
    ]
    axis = {"title": {"text": name.replace("_", " ")}, "type": "linear" if numbers else "category"}
    layout = {"xaxis": axis, "yaxis": {"title": {"text": "s of a step"}}, "showlegend": False}
    caption = f"Steps of the trials over {name.replace('_', ' ')}, whatever the other knobs were."
    return Chart({"data": data, "layout": layout}, caption, 300)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
