"""`ppplan compare`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import complete
from planner.cli import options as o
from planner.errors import InputError, unknown

_OVER = "What to compare, each repeatable or by comma"


def _over(*names: str, help: str, metavar: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_OVER, **more)


Plans = Annotated[
    list[str] | None,
    typer.Argument(
        help="Saved plans, compared as they are.", metavar="PLAN.yaml", show_default=False
    ),
]
Clusters = Annotated[
    list[str] | None,
    _over(
        "--cluster", help="Profile or YAML.", metavar="NAME|PATH", autocompletion=complete.cluster
    ),
]
GpuCounts = Annotated[list[str] | None, _over("--gpus", help="Numbers of GPUs.", metavar="N")]
SeqLengths = Annotated[
    list[str] | None, _over("--seq-length", help="Tokens of a sequence.", metavar="N")
]
Precisions = Annotated[
    list[str] | None,
    _over(
        "--precision",
        help="bf16, fp8-delayed, ...",
        metavar="NAME",
        autocompletion=complete.precision,
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        "--price",
        help="Dollars a GPU hour, in place of the profile's.",
        metavar="USD",
        parser=o.decimal,
    ),
]
Csv = Annotated[str | None, typer.Option("--csv", help="Writes the table.", metavar="FILE.csv")]


def compare(
    plans: Plans = None,
    model: o.Model = None,
    cluster: Clusters = None,
    gpus: GpuCounts = None,
    seq_length: SeqLengths = None,
    precision: Precisions = None,
    price: Price = None,
    set: o.Set = None,
    global_batch_size: o.GlobalBatchSize = None,
    global_batch_tokens: o.GlobalBatchTokens = None,
    stack: o.Stack = None,
    framework: o.Framework = None,
    framework_version: o.FrameworkVersion = None,
    attention: o.Attention = None,
    max_memory_gib: o.MaxMemory = None,
    optimizer: o.Optimizer = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    frozen: o.Frozen = None,
    packing: o.Packing = None,
    mean_length: o.MeanLength = None,
    mtbf_hours: o.MtbfHours = None,
    checkpoint_s: o.CheckpointS = None,
    restart_s: o.RestartS = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    mbs: o.Mbs = None,
    zero: o.Zero = None,
    schedule: o.Schedule = None,
    recompute: o.Recompute = None,
    no_recompute: o.NoRecompute = False,
    csv: Csv = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> None:
    """The same question on several clusters, sizes, sequence lengths or precisions.

    Example: ppplan compare --model llama3-70b --gpus 64 --cluster h100-sxm --cluster h100-pcie
    """
    words = locals()
    over: dict[str, list[Any]] = {
        "cluster": o.listed(cluster),
        "gpus": [o.whole(one) for one in o.listed(gpus)],
        "seq_length": [o.whole(one) for one in o.listed(seq_length)],
        "precision": o.listed(precision),
    }
    given = {
        name: value for name, value in words.items() if name not in (*over, "plans", "price", "csv")
    } | {"file": None}
    if plans and model is None:
        _alone(over | given)
    asked = o.question(given) if model is not None or not plans else None
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.report import save
    from planner.report.text import compare

    _precisions(over["precision"])
    check_report(report)
    save.check_all([csv] if csv else [])
    answer = api.compare(
        asked, {word: values for word, values in over.items() if values}, plans or (), price
    )
    save.write_all({csv: compare.csv_text(answer)} if csv else {})
    show(answer, compare.document, compare.text, as_json)
    write_report(report, "compare", "page", answer)
    if all(row.fault for row in answer.rows):
        raise typer.Exit(1)


def _alone(given: dict[str, Any]) -> None:
    """Saved plans take no words: one that is dropped in silence would look obeyed."""
    stated = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value and name not in ("report", "as_json")
    ]
    if stated:
        raise InputError(
            f"saved plans must be compared as they are, but got {', '.join(stated)}; leave it out,"
            " or add --model NAME for a question beside the plans"
        )


def _precisions(names: list[str]) -> None:
    """An unknown name is a slip, not an answer."""
    from planner.specs.resolve import PRECISIONS

    for name in names:
        if name not in PRECISIONS:
            raise unknown("precision", name, PRECISIONS)
