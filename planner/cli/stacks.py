"""`ppplan stacks`."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import options as o

Every = Annotated[
    bool, typer.Option("--all", help="Those too that are there for published runs alone.")
]


def stacks(name: o.Name = None, every: Every = False, as_json: o.Json = False) -> None:
    """Training software that is known and its distributions, or one of them with its source.

    Example: ppplan stacks megatron
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.stacks(name, every), as_json)
