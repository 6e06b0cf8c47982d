"""Layers of two kinds, dense and with experts: the mean layer of each kind of pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.cost.layer.layer import LayerTime, mean_time
from planner.cost.params.stages import Split
from planner.layout import Numeric


@dataclass(frozen=True, slots=True)
class Times:
    """Time of a layer: of each kind, and the mean on the first, the middle and the last rank."""

    dense: LayerTime
    experts: LayerTime | None
    first: LayerTime
    middle: LayerTime
    last: LayerTime


def times(dense: LayerTime, experts: LayerTime | None, layers: Split) -> Times:
    """The mean layer of each kind of rank.

    Formula: dense (1 - share) + experts share, share the rank's layers with experts over its layers
    Source:  [megatron-core] --moe-layer-freq
    Assumes: nothing beyond the split.
    """
    if experts is None or layers.experts is None:
        return Times(dense, None, dense, dense, dense)
    named = ((getattr(layers, f), getattr(layers.experts, f)) for f in ("first", "middle", "last"))
    return Times(
        dense,
        experts,
        *(mean_time(dense, experts, sparse / np.maximum(count, 1e-9)) for count, sparse in named),
    )


def of_slowest(known: Times, is_first: Numeric, is_last: Numeric) -> LayerTime:
    """The mean layer of the rank that sets the pace."""
    if known.experts is None:
        return known.dense
    picked = {
        f.name: (
            getattr(known.last, f.name),
            getattr(known.first, f.name),
            getattr(known.middle, f.name),
        )
        for f in fields(LayerTime)
    }
    return LayerTime(
        **{
            name: np.where(is_last, a, np.where(is_first, b, c))[()]
            for name, (a, b, c) in picked.items()
        }
    )
