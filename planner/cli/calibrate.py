"""`ppplan calibrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

Profile = Annotated[str, typer.Option("--out", help="The profile to write.", metavar="FILE.yaml")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", help="cuda or cpu; default: the GPUs if there are any.", metavar="NAME"
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        help="GPUs, or processes on a CPU, at once; default: all GPUs, or 2 processes.",
        metavar="N",
        parser=o.integer,
    ),
]
Limit = Annotated[
    float,
    typer.Option(
        "--limit-s",
        help="Seconds after which measuring is given up.",
        metavar="S",
        parser=o.decimal,
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured",
        help="A result of planner.calibrate.worker that torchrun started over nodes.",
        metavar="FILE.json",
    ),
]


def calibrate(
    out: Profile = "profile.yaml",
    device: Device = None,
    devices: Devices = None,
    limit_s: Limit = 600.0,
    measured: Measured = None,
    report: o.Report = None,
    as_json: o.Json = False,
) -> None:
    """Measure this machine and write a hardware profile.

    Example: ppplan calibrate --out here.yaml, then ppplan recommend --cluster here.yaml --model
    llama3-8b --gpus 8
    """
    from planner import api
    from planner.cli.show import check_report, show, write_report

    check_report(report)
    answer = api.calibrate(
        out, device, devices, limit_s, measured, tell=lambda line: typer.echo(line, err=True)
    )
    show("calibrate", answer, as_json)
    write_report("calibrate", answer, report)
    if answer.profile is None:
        raise typer.Exit(1)
