"""`ppplan switches`."""

from __future__ import annotations

from planner.cli import options as o


def switches(name: o.Name = None, as_json: o.Json = False) -> None:
    """Switches of the training software, or one of them with its flags, numerics and source.

    Example: ppplan switches cuda_graph
    """
    from planner import api
    from planner.cli.show import show

    show("listing", api.switches(name), as_json)
