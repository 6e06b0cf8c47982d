"""Layers that ran in place of a plan, as the table tells them."""

from __future__ import annotations

import io

from rich.console import Console

from planner.layout import Layout
from planner.report.text import tune
from planner.tune.answer.refined_plan import named
from planner.tune.study.trials import Row

LAYERS = (
    {
        "name": "dense",
        "forward_s": 0.002,
        "backward_s": 0.004,
        "predicted_forward_s": 0.0025,
        "predicted_backward_s": 0.003,
        "kept_bytes": 2.0**21,
        "predicted_kept_bytes": 2.0**20,
    },
    {
        "name": "head",
        "forward_s": 0.001,
        "backward_s": 0.0,
        "predicted_forward_s": 0.001,
        "predicted_backward_s": 0.002,
    },
)


def test_measured_layers_stand_beside_predicted_ones() -> None:
    """By hand: 2.5 of 2 ms is 25% more, 3 of 4 ms 25% less, 1 of 2 MiB half; of no time the
    prediction itself is told, in ms.
    """
    one = Row(3, Layout(tp=8), "done", 1.0, 1.1, proxy="1 device for a plan of 8", layers=LAYERS)
    console = Console(width=120, file=io.StringIO())
    console.print(tune.layers(one))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["dense", "2", "+25%", "4", "-25%", "2", "-50%"] in lines
    assert ["head", "1", "+0%", "0", "2"] in lines
    assert named(one)["layers"] == list(LAYERS)
