"""`ppplan compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from planner.cli import complete
from planner.cli import options as o
from planner.errors import InputError, unknown
from planner.specs.words import Question

NOT_COMPARED = (
    "lora_base",
    "etp",
    "v",
    "m",
    "hpz",
    "cp_a2a",
    "offload",
    "sp",
    "group",
    "recompute_layers",
    "recompute_modules",
    "account_for_embedding",
    "account_for_loss",
    "first_layers",
    "last_layers",
    "stage_layout",
)
"""Words of one layout, which another cluster or size would not keep."""
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
Softwares = Annotated[
    list[str] | None,
    _over(
        "--software",
        help="Software by version.",
        metavar="NAME@VERSION",
        autocompletion=complete.software,
    ),
]
Stacks = Annotated[
    list[str] | None,
    _over(
        "--stack", help="Software or distributions.", metavar="NAME", autocompletion=complete.stack
    ),
]
Versions = Annotated[
    list[str] | None,
    _over("--framework-version", help="Versions of the framework.", metavar="VERSION"),
]
Containers = Annotated[
    list[str] | None,
    _over(
        "--container",
        help="Images that runs start in.",
        metavar="IMAGE",
        autocompletion=complete.container,
    ),
]
Switches = Annotated[
    list[str] | None,
    _over(
        "--switch",
        help="Values of a switch; a single one holds in every row.",
        metavar="NAME=A,B",
        autocompletion=complete.switch,
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


@o.takes(Question, without=NOT_COMPARED)
def compare(
    plans: Plans = None,
    model: Annotated[str | None, o.option("model")] = None,
    cluster: Clusters = None,
    gpus: GpuCounts = None,
    seq_length: SeqLengths = None,
    precision: Precisions = None,
    software: Softwares = None,
    stack: Stacks = None,
    framework_version: Versions = None,
    container: Containers = None,
    switch: Switches = None,
    *,
    price: Price = None,
    csv: Csv = None,
    report: o.Report = None,
    as_json: o.Json = False,
    **words: Any,
) -> None:
    """The same question on several clusters, sizes, precisions, versions or switches.

    Example: ppplan compare --model llama3-70b --gpus 64 --cluster h100-sxm --cluster h100-pcie
    """
    over: dict[str, list[Any]] = {
        "cluster": o.listed(cluster),
        "gpus": [o.integer(count) for count in o.listed(gpus)],
        "seq_length": [o.integer(length) for length in o.listed(seq_length)],
        "precision": o.listed(precision),
        "software": o.listed(software),
        "stack": o.listed(stack),
        "framework_version": o.listed(framework_version),
        "container": o.listed(container),
        **_switches(switch),
    }
    over = {word: values for word, values in over.items() if values}
    if plans and model is None:
        _check_alone({**over, **words})
        question = None
    else:
        question = o.question(None, {"model": model, **words})
    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.files import check_files, write_files
    from planner.report.csv.compare import table

    _check_precisions(over.get("precision", ()))
    check_report(report)
    check_files([csv] if csv else [])
    answer = api.compare(question, over, plans or (), price)
    write_files({csv: table(answer)} if csv else {})
    show("compare", answer, as_json)
    write_report("compare", answer, report)
    if all(row.fault for row in answer.rows):
        raise typer.Exit(1)


def _switches(options: list[str] | None) -> dict[str, list[Any]]:
    """Values by switch of `NAME=A,B`; a part without a name is another value of the one before."""
    from planner.specs.sweep import is_switch
    from planner.specs.switches.table import BY_FRAMEWORK, no_such

    out: dict[str, list[Any]] = {}
    name = ""
    for part in o.listed(options):
        before, equals, value = part.partition("=")
        name = before.strip().replace("-", "_") if equals else name
        if not name:
            raise InputError(f"a switch must be stated as NAME=VALUE, but got {part[:60]!r}")
        if not is_switch(name):
            raise no_such(name, BY_FRAMEWORK)
        out.setdefault(name, []).append(value.strip() if equals else part)
    return out


def _check_alone(words: dict[str, Any]) -> None:
    """Saved plans take no words: one that is dropped in silence would look obeyed."""
    options = [f"--{name.replace('_', '-')}" for name, value in words.items() if value]
    if options:
        raise InputError(
            f"saved plans must be compared as they are, but got {', '.join(options)}; leave it out,"
            " or add --model NAME for a question beside the plans"
        )


def _check_precisions(names: Sequence[str]) -> None:
    """An unknown name is a slip, not an answer."""
    from planner.specs.resolve import PRECISIONS

    for name in names:
        if name not in PRECISIONS:
            raise unknown("precision", name, PRECISIONS)
