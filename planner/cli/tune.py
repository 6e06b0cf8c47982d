"""`ppplan tune`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import TuneWords


@o.takes(TuneWords)
def tune(
    plan: Annotated[
        str, typer.Argument(help="A plan.yaml of `ppplan recommend --out`.", show_default=False)
    ],
    *,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> int:
    """Measures layouts around a plan on real devices, and refines it.

    Example: ppplan tune plan/plan.yaml --trials 10
    """
    from rich.console import Console

    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.errors import check_installed

    check_installed("tune", "optuna")
    from planner.report.text import tune_progress

    check_report(report)
    tell = tune_progress.teller(Console(stderr=True), words["trials"])
    answer = api.tune(plan, tell=tell, **words)
    show("tune", answer, as_json)
    write_report("tune", answer, report)
    return 0 if answer.best is not None else 1
