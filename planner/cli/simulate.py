"""`ppplan simulate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import complete
from planner.cli import options as o

_PIPELINE, _WORK, _FILES = (
    "The pipeline",
    "What a stage takes, in any unit of time",
    "What to write",
)


def _of(panel: str, *names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **more
    )


def _count(panel: str, *names: str, help: str, metavar: str) -> Any:
    return _of(panel, *names, help=help, metavar=metavar, parser=o.whole)


def _number(panel: str, *names: str, help: str, metavar: str) -> Any:
    return _of(panel, *names, help=help, metavar=metavar, parser=o.decimal)


Schedule = Annotated[
    str | None,
    _of(
        _PIPELINE,
        "--schedule",
        help="One of `ppplan schedules`, or all: a comparison.",
        metavar="NAME|all",
        autocompletion=complete.schedule,
    ),
]
Pp = Annotated[int | None, _count(_PIPELINE, "--pp", help="Pipeline ranks.", metavar="P")]
Microbatches = Annotated[
    int | None,
    _count(_PIPELINE, "--microbatches", "--m", help="Micro-batches of a step.", metavar="M"),
]
V = Annotated[
    int | None,
    _count(
        _PIPELINE, "--v", help="Virtual stages a rank; default the fewest, 2 with all.", metavar="V"
    ),
]
Group = Annotated[
    int | None,
    _count(
        _PIPELINE, "--group", help="Interleaved: micro-batches of a group; default P.", metavar="G"
    ),
]
Bubble = Annotated[
    float | None,
    _number(
        _PIPELINE, "--bubble", help="Finds M: the fewest for a bubble below it.", metavar="SHARE"
    ),
]
MemoryLimit = Annotated[
    float | None,
    _number(
        _PIPELINE, "--memory-limit", help="Automatic: activations a rank, in stages.", metavar="N"
    ),
]
Retained = Annotated[
    float,
    _number(
        _PIPELINE,
        "--weight-retained",
        help="Share of activations that weight gradients keep; default 1.",
        metavar="SHARE",
    ),
]

Forward = Annotated[
    float | None,
    _number(_WORK, "--forward", help="Forward of a full 1/p of the model; default 1.", metavar="T"),
]
Backward = Annotated[
    float | None,
    _number(
        _WORK, "--backward", help="Its backward; default 2; split schedules halve it.", metavar="T"
    ),
]
InputGrad = Annotated[
    float | None,
    _number(_WORK, "--input-grad", help="With --weight-grad, in place of --backward.", metavar="T"),
]
WeightGrad = Annotated[
    float | None,
    _number(_WORK, "--weight-grad", help="With --input-grad, in place of --backward.", metavar="T"),
]
Pair = Annotated[
    float | None,
    _number(
        _WORK, "--pair", help="An overlapped forward and backward; default their sum.", metavar="T"
    ),
]
Transfer = Annotated[
    float | None,
    _number(_WORK, "--transfer", help="An activation to the next rank; default 0.", metavar="T"),
]
Blocking = Annotated[
    bool | None, _of(_WORK, "--blocking/--no-blocking", help="The sender is busy while it sends.")
]
StageScale = Annotated[
    str | None,
    _of(
        _WORK,
        "--stage-scale",
        help="A factor a rank or virtual stage: 1,1,1,1.2.",
        metavar="A,B,...",
    ),
]
HeadExtra = Annotated[
    float,
    _number(
        _WORK,
        "--head-extra",
        help="Head and loss on the last stage, in full 1/p of the model.",
        metavar="X",
    ),
]

Order = Annotated[
    bool, _of(_FILES, "--order", help="Prints each rank's actions in torch's notation.")
]
Gantt = Annotated[
    str | None, _of(_FILES, "--gantt", help="Writes the picture.", metavar="FILE.html|.svg|.png")
]
Trace = Annotated[
    str | None,
    _of(_FILES, "--trace", help="Writes a Chrome trace; opens in Perfetto.", metavar="FILE.json"),
]
Csv = Annotated[
    str | None, _of(_FILES, "--csv", help="Writes one action a row.", metavar="FILE.csv")
]
ForwardOnly = Annotated[
    str | None,
    _of(
        _PIPELINE,
        "--forward-only",
        help="A scenario of prefill chunks and decode groups.",
        metavar="SCENARIO.yaml",
    ),
]
Degree = Annotated[
    int | None,
    _count("The question", "--tp", help="With --model: tensor parallelism.", metavar="N"),
]
Sequences = Annotated[
    int | None,
    _count("The question", "--mbs", help="With --model: sequences per micro-batch.", metavar="N"),
]
Context = Annotated[
    int | None, _count("The question", "--cp", help="Context parallelism.", metavar="N")
]
Recompute = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        help="With --model: none, selective or full.",
        metavar="NAME",
        rich_help_panel="The question",
    ),
]


def simulate(
    schedule: Schedule = None,
    pp: Pp = None,
    microbatches: Microbatches = None,
    v: V = None,
    group: Group = None,
    bubble: Bubble = None,
    forward_only: ForwardOnly = None,
    memory_limit: MemoryLimit = None,
    weight_retained: Retained = 1.0,
    forward: Forward = None,
    backward: Backward = None,
    input_grad: InputGrad = None,
    weight_grad: WeightGrad = None,
    pair: Pair = None,
    transfer: Transfer = None,
    blocking: Blocking = None,
    stage_scale: StageScale = None,
    head_extra: HeadExtra = 0.0,
    model: o.Model = None,
    cluster: o.Cluster = None,
    set: o.Set = None,
    seq_length: o.SeqLength = None,
    tp: Degree = None,
    mbs: Sequences = None,
    cp: Context = None,
    sp: o.Sp = None,
    recompute: Recompute = None,
    precision: o.Precision = None,
    stack: o.Stack = None,
    attention: o.Attention = None,
    account_for_embedding: o.AccountEmbedding = None,
    account_for_loss: o.AccountLoss = None,
    first_layers: o.FirstLayers = None,
    last_layers: o.LastLayers = None,
    stage_layout: o.StageLayout = None,
    order: Order = False,
    gantt: Gantt = None,
    trace: Trace = None,
    csv: Csv = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> int:
    """The timeline of a pipeline schedule, or of all.

    Example: ppplan simulate --schedule 1f1b --pp 4 --microbatches 8
    """
    given = locals()
    from planner.cli.show import check_report, print_json, print_text, write_report
    from planner.pipeline.words import answer
    from planner.report import save
    from planner.report.simulate_files import check, contents, document, no, order_text, text

    check(schedule == "all", gantt, trace, csv, order)
    check_report(report)
    found = answer(given)
    save.write_all(contents(found, gantt, trace, csv))
    if as_json:
        print_json(document(found, order))
    elif order:
        typer.echo(order_text(found), nl=False)
    else:
        print_text(text(found, _columns(), [path for path in (gantt, trace, csv) if path]))
    write_report(report, "simulate", "page", found)
    return 1 if no(found) else 0


def _columns() -> int:
    """Of the terminal; 100 where stdout is none."""
    import shutil
    import sys

    from planner.cli.show import WIDTH

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
