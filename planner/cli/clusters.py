"""`ppplan clusters`."""

from __future__ import annotations

from planner.cli import options as o


def clusters(name: o.Name = None, as_json: o.Json = False) -> None:
    """Clusters that are known, or one of them with the source of every figure.

    Example: ppplan clusters h100-sxm
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.clusters(name), as_json)
