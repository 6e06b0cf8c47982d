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
    from planner.cli.show import check_report, print_json, print_text, write_report
    from planner.report import save
    from planner.report.draw import scatter
    from planner.report.text import validate

    save.check_all([path for path in (out, plot) if path is not None], read=files or ())
    check_report(report)
    if plot is not None:
        scatter.check(plot)
    found = api.validate(files, source, where)
    drawn = {} if plot is None else {plot: scatter.drawn(found, plot)}
    save.write_all({**({} if out is None else {out: validate.csv_text(found)}), **drawn})
    if as_json:
        print_json(validate.document(found))
    else:
        print_text(validate.text(found, [path for path in (out, plot) if path is not None]))
    write_report(report, "validate", "page", found)
    error = found.overall["median_abs_error"]
    return 1 if max_error is not None and not error <= max_error else 0
