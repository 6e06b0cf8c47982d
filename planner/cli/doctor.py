"""`ppplan doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

MegatronPath = Annotated[
    str | None,
    typer.Option("--megatron-path", help="A clone of Megatron-LM to look at.", metavar="DIR"),
]


def doctor(megatron_path: MegatronPath = None, as_json: o.Json = False) -> None:
    """What this machine has, which runners and launchers of tune would work on it, and why not.

    Example: ppplan doctor --json
    """
    from planner import api
    from planner.cli.show import show

    show("doctor", api.doctor(megatron_path), as_json)
