"""`ppplan schedules`."""

from __future__ import annotations

from planner.cli import options as o


def schedules(name: o.Name = None, as_json: o.Json = False) -> None:
    """Pipeline schedules that are known, or one of them with its formulas.

    Example: ppplan schedules 1f1b
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.schedules(name), as_json)
