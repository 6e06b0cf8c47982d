"""`ppplan models`."""

from __future__ import annotations

from planner.cli import options as o


def models(name: o.Name = None, as_json: o.Json = False) -> None:
    """Models that are known, or one of them with its source.

    Example: ppplan models llama3-70b
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.models(name), as_json)
