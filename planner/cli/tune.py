"""`ppplan tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

_TRIALS = "Layouts to measure, those of the study so far and of its other workers included."
_REPEATS = (
    "Runs once more, in turns, of the fastest and of those that noise may have put behind it."
)
_SWITCHES = (
    "Runs of the fastest layouts under other overlap switches and bucket sizes, one changed at a"
    " time."
)
_RUNNER = "Whose training step: torch (a benchmark of the plan's model), megatron, deepspeed."
_STORAGE = "SQLite beside the plan by default; any URL of Optuna; journal:FILE on a shared disk."
_RESUME = "Go on with a study, or join its workers; one that was killed loses no finished trial."
_DEVICES = (
    "Devices to use; default: the GPUs here, else a process a core. A larger plan is measured in"
    " parts."
)

Runner = Annotated[str, typer.Option("--runner", help=_RUNNER, metavar="NAME")]
Launcher = Annotated[
    str,
    typer.Option(
        "--launcher", help="Where trials run: local, torchrun, slurm or kubernetes.", metavar="NAME"
    ),
]
Storage = Annotated[str | None, typer.Option("--storage", help=_STORAGE, metavar="URL")]
Study = Annotated[
    str | None,
    typer.Option("--study", help="Its name; default: that of the plan and runner.", metavar="NAME"),
]
Limit = Annotated[
    float,
    typer.Option(
        "--limit-s",
        help="Longest that a trial may take, start to end.",
        metavar="S",
        parser=o.decimal,
    ),
]
Devices = Annotated[
    int | None, typer.Option("--devices", help=_DEVICES, metavar="N", parser=o.integer)
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="Folder for what is found; default: PLAN-tuned beside the plan.",
        metavar="DIR",
    ),
]
Megatron = Annotated[
    str | None,
    typer.Option(
        "--megatron-path", help="A checkout of Megatron-LM, for --runner megatron.", metavar="DIR"
    ),
]


def tune(
    plan: Annotated[
        str, typer.Argument(help="A plan.yaml of `ppplan recommend --out`.", show_default=False)
    ],
    trials: Annotated[
        int, typer.Option("--trials", help=_TRIALS, metavar="N", parser=o.integer)
    ] = 10,
    runner: Runner = "torch",
    launcher: Launcher = "local",
    storage: Storage = None,
    study: Study = None,
    repeats: Annotated[
        int, typer.Option("--repeats", help=_REPEATS, metavar="N", parser=o.integer)
    ] = 2,
    switches: Annotated[
        int, typer.Option("--switches", help=_SWITCHES, metavar="N", parser=o.integer)
    ] = 4,
    resume: Annotated[bool, typer.Option("--resume", help=_RESUME)] = False,
    limit_s: Limit = 600,
    devices: Devices = None,
    out: Out = None,
    megatron_path: Megatron = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> int:
    """Measures layouts around a plan on real devices, and refines it.

    Example: ppplan tune plan/plan.yaml --trials 10
    """
    from rich.console import Console

    from planner import api
    from planner.cli.show import check_report, show, write_report
    from planner.errors import check_installed

    check_installed("tune", "optuna")
    from planner.report.text import tune_progress

    check_report(report)
    tell = tune_progress.teller(Console(stderr=True), trials)
    result = api.tune(
        plan,
        trials=trials,
        runner=runner,
        launcher=launcher,
        storage=storage,
        study=study,
        resume=resume,
        limit_s=limit_s,
        devices=devices,
        out=out,
        megatron_path=megatron_path,
        repeats=repeats,
        switches=switches,
        tell=tell,
    )
    show("tune", result, as_json)
    write_report("tune", result, report)
    return 0 if result.best is not None else 1
