"""`ppplan calibrate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import CalibrateWords

Profile = Annotated[str, typer.Option("--out", help="The profile to write.", metavar="FILE.yaml")]


@o.takes(CalibrateWords)
def calibrate(
    out: Profile = "profile.yaml",
    *,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> None:
    """Measure this machine and write a hardware profile.

    Example: ppplan calibrate --out here.yaml, then ppplan recommend --cluster here.yaml --model
    llama3-8b --gpus 8
    """
    from planner import api
    from planner.cli.show import check_report, show, write_report

    check_report(report)
    answer = api.calibrate(out, tell=lambda line: typer.echo(line, err=True), **words)
    show("calibrate", answer, as_json)
    write_report("calibrate", answer, report)
    if answer.profile is None:
        raise typer.Exit(1)
