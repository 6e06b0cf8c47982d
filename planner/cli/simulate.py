"""`ppplan simulate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import SimulateWords

_FILES = "What to write"


def _file(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=_FILES, show_default=False
    )


Order = Annotated[bool, _file("--order", help="Prints each rank's actions in torch's notation.")]
Gantt = Annotated[
    str | None, _file("--gantt", help="Writes the picture.", metavar="FILE.html|.svg|.png")
]
Trace = Annotated[
    str | None,
    _file("--trace", help="Writes a Chrome trace; opens in Perfetto.", metavar="FILE.json"),
]
Csv = Annotated[str | None, _file("--csv", help="Writes one action a row.", metavar="FILE.csv")]


@o.takes(SimulateWords)
def simulate(
    *,
    order: Order = False,
    gantt: Gantt = None,
    trace: Trace = None,
    csv: Csv = None,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> int:
    """The timeline of a pipeline schedule, or of all.

    Example: ppplan simulate --schedule 1f1b --pp 4 --microbatches 8
    """
    from planner.cli.show import check_report, print_json, print_text, write_report
    from planner.files import write_files
    from planner.pipeline.answer import all_words, answer, answers_no
    from planner.report.simulate_files import check, contents

    check(words["schedule"] == "all", gantt, trace, csv, order)
    check_report(report)
    result = answer(all_words(o.question_words(words)))
    write_files(contents(result, gantt, trace, csv))
    if as_json:
        from planner.report.json.simulate import document

        print_json(document(result, order))
    else:
        from planner.report.text import simulate as text

        if order:
            typer.echo(text.order(result), nl=False)
        else:
            written = [path for path in (gantt, trace, csv) if path]
            print_text(text.text(result, _columns(), written))
    write_report("simulate", result, report)
    return 1 if answers_no(result) else 0


def _columns() -> int:
    """Of the terminal; 100 where stdout is none."""
    import shutil
    import sys

    from planner.cli.show import WIDTH

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
