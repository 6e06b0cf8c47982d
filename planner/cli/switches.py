"""`ppplan switches`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

Framework = Annotated[
    str | None,
    typer.Option("--framework", metavar="NAME", help="megatron, deepspeed or torch alone."),
]


def switches(name: o.Name = None, framework: Framework = None, as_json: o.Json = False) -> None:
    """Switches of the training software, or one of them with its flags, numerics and source.

    They are a framework's (megatron, deepspeed, torch). A software (--software NAME@VERSION) has
    those of its version; a stack, or distribution, turns some on; a container tells versions.

    Example: ppplan switches cuda_graph --framework megatron
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.switches(name, framework), as_json)
