"""Tables for a terminal: rates of tiny machines keep their digits, and no table is wider than 100
columns.
"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from planner.cost.terms import Estimate
from planner.estimate import estimate
from planner.layout import Layout
from planner.report.html import parts
from planner.report.text.parts import WIDTH, plans, tflops
from tests.tune.simulated import question


@pytest.fixture(scope="module")
def plan() -> tuple[Layout, Estimate]:
    recipe, space = question()
    layout = space.candidates[0].layout
    return layout, estimate(recipe, layout)


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        (1234.4, "1234"),
        (412.6, "413"),
        (10.2, "10"),
        (9.96, "10"),
        (9.94, "9.9"),
        (3.0, "3.0"),
        (0.0304, "0.030"),
        (0.000123, "0.00012"),
        (0.0000123, "1.2e-05"),
    ],
)
def test_small_rates_keep_two_digits(plan: tuple[Layout, Estimate], rate: float, says: str) -> None:
    layout, said = plan
    slow = replace(said, model_tflops_per_gpu=rate)
    assert tflops(slow) == says
    grid = parts.layouts([("1", layout, slow)], "plan")
    assert grid.rows[0][grid.head.index("TFLOP/s a GPU")] == says
    out = StringIO()
    Console(width=4 * WIDTH, file=out).print(plans([("1", layout, slow)]))
    lines = out.getvalue().splitlines()
    assert (
        any(says in line.split() for line in lines)
        and max(len(line.rstrip()) for line in lines) <= WIDTH
    )


def test_the_headline_groups_thousands(plan: tuple[Layout, Estimate]) -> None:
    assert "1,234 TFLOP/s" in [
        figure for figure, _ in parts.headline(replace(plan[1], model_tflops_per_gpu=1234.4))
    ]
