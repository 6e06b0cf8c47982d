"""`ppplan emit`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o


def emit(
    plan: Annotated[
        str, typer.Argument(help="A plan.yaml of `ppplan recommend --out`.", show_default=False)
    ],
    framework: Annotated[
        str | None, typer.Option("--framework", help="Default: that of the plan.", metavar="NAME")
    ] = None,
    launcher: o.Launcher = "torchrun",
    out: Annotated[
        str | None,
        typer.Option("--out", help="Folder for the files; default: print them.", metavar="DIR"),
    ] = None,
    format: o.Format = None,
    script: o.Script = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="A script that runs the fullest rank on one GPU, and prints a line that check and"
            " validate read.",
        ),
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Launch files of a saved plan.

    Example: ppplan emit plan/plan.yaml --launcher slurm --out plan
    """
    from planner import api
    from planner.cli.show import print_json
    from planner.report.json.emit import document

    emitted = api.emit(
        plan,
        framework=framework,
        launcher=launcher,
        out=out,
        script=script,
        format=format,
        prove=prove,
    )
    if as_json:
        print_json(document(emitted))
    else:
        typer.echo("\n".join(emitted.files or emitted.texts.values()).rstrip("\n"))
