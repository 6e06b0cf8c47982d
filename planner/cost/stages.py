"""Which layers each pipeline stage has.

Columns know three kinds of ranks: the first (embedding), those between, the last (head and loss). One layout is
split exactly, chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.layout import Layout, Numeric
from planner.specs import stage_layout
from planner.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Split:
    """Layers of a pipeline rank, all its virtual stages together."""

    first: Numeric
    middle: Numeric
    """Of the ranks between; as the first when there are none."""
    last: Numeric


def split(model: ModelSpec, layout: Layout) -> Split:
    """Layers of the first, the middle and the last pipeline rank.

    Formula: even share of L + account_for_embedding + account_for_loss, less the accounted one; or first, last, rest even
    Source:  [megatron-core] get_num_layers_to_build
    Assumes: the layout is legal; otherwise shares are fractions and a rule removes it.
    """
    pp, layers = layout.pp, float(model.num_layers)
    even = (layers + layout.account_for_embedding + layout.account_for_loss) / pp
    set_first, set_last = np.minimum(layout.first_layers, 1), np.minimum(layout.last_layers, 1)
    rest = (layers - layout.first_layers - layout.last_layers) / np.maximum(pp - set_first - set_last, 1)
    uneven = (set_first + set_last > 0) & (np.asarray(pp) > 1)
    first = np.where(uneven, np.where(set_first, layout.first_layers, rest), even - layout.account_for_embedding)
    last = np.where(uneven, np.where(set_last, layout.last_layers, rest), even - layout.account_for_loss)
    middle = np.where(uneven, rest, even)
    alone = np.asarray(pp) == 1
    return Split(
        first=np.where(alone, layers, first)[()],
        middle=np.where(np.asarray(pp) > 2, middle, np.where(alone, layers, first))[()],
        last=np.where(alone, layers, last)[()],
    )


def chunk_layers(model: ModelSpec, layout: Layout) -> list[list[int]]:
    """Layers of every virtual stage of one layout: [rank][chunk].

    Formula: as split(), each rank's share over its v chunks; the accounted layer is missing in the first or last chunk
    Source:  [megatron-core] get_num_layers_to_build, pipeline_parallel_layer_layout
    Assumes: one legal layout.
    """
    pp, v = layout.pp, layout.v
    if layout.stage_layout:
        counts = stage_layout.layers(layout.stage_layout)
        return [[counts[chunk * pp + rank] for chunk in range(len(counts) // pp)] for rank in range(pp)]
    share = split(model, layout)
    ranks = [share.first] + [share.middle] * (pp - 2) + [share.last] * (pp > 1)
    lacks_first = layout.account_for_embedding and not layout.first_layers
    lacks_last = layout.account_for_loss and not layout.last_layers
    table = []
    for rank, layers in enumerate(ranks):
        less_first = int(rank == 0 and lacks_first)
        less_last = int(rank == pp - 1 and lacks_last)
        chunk = round((layers + less_first + less_last) / v)
        row = [chunk] * v
        row[0] -= less_first
        row[-1] -= less_last
        table.append(row)
    return table
