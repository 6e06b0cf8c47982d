"""`ppplan explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import options as o
from planner.specs.words import Question

Sweep = Annotated[
    list[str] | None,
    typer.Option("--sweep", help="A table over a word; repeatable.", metavar="WORD=A,B,C"),
]

Formulas = Annotated[
    bool,
    typer.Option("--formulas/--no-formulas", help="Formulas, sources and assumptions at the end."),
]


@o.takes(Question)
def explain(
    file: o.File = None,
    *,
    sweep: Sweep = None,
    formulas: Formulas = True,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> None:
    """Every term of one layout, or a table over a swept word.

    Example: ppplan explain --model llama3-70b --gpus 32 --tp 8 --pp 4 --sweep v=1,2,5
    """
    question = o.question(file, words, layout=True)
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.specs.sweep import check_once, sweeps

    check_report(report)
    if sweep:
        over = sweeps(sweep)
        check_once(over, o.question_words(words))
        table = api.sweep(question, over)
        show("sweep", table, as_json)
        write_report("sweep", table, report)
    else:
        answer = api.explain(question)
        show("explain", answer, as_json, formulas=formulas)
        write_report("explain", answer, report)
