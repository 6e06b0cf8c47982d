"""`ppplan recommend`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import Question


@o.takes(Question)
def recommend(
    file: o.File = None,
    *,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            help="So many of the fastest, in place of the plans that differ.",
            metavar="K",
            parser=o.integer,
        ),
    ] = None,
    min_gpus: Annotated[
        bool, typer.Option("--min-gpus", help="The smallest GPU count on which a layout fits.")
    ] = False,
    out: o.Out = None,
    launcher: o.Launcher = "torchrun",
    format: o.Format = None,
    script: o.Script = None,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> None:
    """Rank the layouts that fit.

    Example: ppplan recommend --model llama3-70b --gpus 32 --cluster h100-sxm --out plan
    """
    question = o.question(file, words)
    from planner import api
    from planner.cli.show import check_report, show, write_report

    check_report(report)
    answer = api.recommend(
        question,
        top=top,
        min_gpus=min_gpus,
        out=out,
        launcher=launcher,
        script=script,
        format=format,
    )
    show("recommend", answer, as_json)
    write_report("recommend", answer, report)
    if answer.search is None or not answer.search.plans:
        raise typer.Exit(1)
