"""Dispatcher: how fast a library that sends tokens to experts moves them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import NonNegativeFloat, PositiveFloat

from planner.specs.documents import FrozenDocument, read_mapping

FILE = Path(__file__).with_name("dispatchers.yaml")


class Dispatcher(FrozenDocument):
    """Its kernels run on a few SMs, which bound what they move over NVLink."""

    dispatch_gbytes_per_s: NonNegativeFloat
    """Bytes that a GPU receives a second, over one node's NVLink; 0: all that the link carries."""
    combine_gbytes_per_s: NonNegativeFloat
    rack_dispatch_gbytes_per_s: NonNegativeFloat = 0.0
    """The same where one NVLink domain spans nodes (NVL72); 0: as inside a node."""
    rack_combine_gbytes_per_s: NonNegativeFloat = 0.0
    wire_share: PositiveFloat
    """Bandwidth between nodes over that of large collectives."""
    tax_share: NonNegativeFloat
    """Slowdown of compute while it runs beside it: its SMs over the GPU's."""
    source: str


@lru_cache(maxsize=1)
def dispatchers() -> dict[str, Dispatcher]:
    """Those of dispatchers.yaml by name; what NCCL does needs none."""
    return {name: Dispatcher(**entry) for name, entry in read_mapping(FILE).items()}
