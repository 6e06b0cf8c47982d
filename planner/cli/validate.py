"""`ppplan validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="Measured runs; default: the published ones of ppplan.", metavar="FILE.csv"
    ),
]
Source = Annotated[
    str | None, typer.Option("--source", help="Only runs of this source.", metavar="NAME")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        help="Only runs for which this pandas query over the columns holds.",
        metavar="EXPR",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", help="Writes the rows with their predictions.", metavar="FILE.csv"),
]
Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        help="Draws predicted against measured times: .html, .svg or .png.",
        metavar="FILE",
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        help="Exit code 1 when the median error is above.",
        metavar="SHARE",
        parser=o.share,
    ),
]


def validate(
    files: Files = None,
    source: Source = None,
    where: Where = None,
    out: Out = None,
    plot: Plot = None,
    max_error: MaxError = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> int:
    """Predictions against measured runs.

    Example: ppplan validate --source korthikanti2022
    """
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.files import check_files, write_files
    from planner.report.csv.validate import table
    from planner.report.draw.validate import check, picture

    written = [path for path in (out, plot) if path is not None]
    check_files(written, read=files or ())
    check_report(report)
    if plot is not None:
        check(plot)
    answer = api.validate(files, source, where)
    contents: dict[str, str | bytes] = {}
    if out is not None:
        contents[out] = table(answer)
    if plot is not None:
        contents[plot] = picture(answer, plot)
    write_files(contents)
    show("validate", answer, as_json, files=written)
    write_report("validate", answer, report)
    error = answer.overall["median_abs_error"]
    return 1 if max_error is not None and not error <= max_error else 0
