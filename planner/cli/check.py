"""`ppplan check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import Question

File = Annotated[
    str,
    typer.Argument(
        help="A launch script, a DeepSpeed, NeMo, ... configuration, or a log.", show_default=False
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="What the file does not tell; repeatable.", metavar="NAME=VALUE"),
]
OomText = Annotated[
    str | None,
    typer.Option(
        "--oom", help="An out-of-memory message, or its size: names the tensor.", metavar="TEXT"
    ),
]
Fix = Annotated[
    str | None,
    typer.Option("--fix", help="Writes the file again, legal and fitting.", metavar="OUT"),
]
Csv = Annotated[
    str | None,
    typer.Option("--csv", help="Of a log: writes the row that validate reads.", metavar="FILE.csv"),
]


WORDS = ("cluster", "gpus", "model", "software", "framework_version", "stack", "container")


@o.takes(Question, only=WORDS)
def check(
    file: File,
    *,
    set: Set = None,
    oom: OomText = None,
    fix: Fix = None,
    csv: Csv = None,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> int:
    """What will happen with a launch that you already have. Nothing in the file is run.

    Example: ppplan check launch.sh --cluster h100-sxm --set NNODES=4
    """
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.files import check_files, write_files
    from planner.report.csv.check import table

    check_report(report)
    check_files([csv] if csv else [])
    answer = api.check(file, set=set or (), oom=oom, fix=fix, **words)
    write_files({csv: table(answer)} if csv else {})
    show("check", answer, as_json)
    if answer.diff and not as_json:
        typer.echo(answer.diff)
    write_report("check", answer, report)
    return 0 if answer.verdict in ("fits", "marginal") else 1
