"""`ppplan stacks`."""

from __future__ import annotations

from planner.cli import options as o


def stacks(name: o.Name = None, as_json: o.Json = False) -> None:
    """Training software that is known, or one of them with its source.

    Example: ppplan stacks megatron
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.stacks(name), as_json)
