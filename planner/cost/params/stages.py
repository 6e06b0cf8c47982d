"""Which layers each pipeline stage has.

Columns know three kinds of ranks: the first (embedding), those between, the last (head and loss).
One layout is split exactly, chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from planner.cost.params.experts import moe_layers_below
from planner.layout import Layout, Layouts, Numeric
from planner.specs import stage_layout
from planner.specs.model import ModelSpec, Moe


@dataclass(frozen=True, slots=True)
class Split:
    """Layers of a pipeline rank, all its virtual stages together."""

    first: Numeric
    middle: Numeric
    """Of the ranks between; as the first when there are none."""
    last: Numeric
    experts: Split | None = None
    """Of these, the layers with experts; None for a dense model."""


def head_layers(model: ModelSpec) -> float:
    """The head's products in layers.

    Formula: V h / (4 a d h + 3 f h)
    Source:  [nanotron] get_block_compute_costs
    Assumes: as that software counts: every query head has its own keys and values, and the MLP is
             gated.
    """
    return model.vocab_size / (4 * model.query_size + 3 * model.ffn_size)


def dealt(model: ModelSpec, layout: Layouts, head_share: float) -> Split:
    """Layers of the first, the fullest middle and the last pipeline rank when the software deals
    them by size.

    A stage takes layers until the work so far reaches its share: the first ones get more than an
    even share, the head's may get none.

    Formula: through stage k min(L, ceil((k+1) share)), share = (L + H) / p, H = head_share
             head_layers(); the last stage has the rest
    Source:  [nanotron] build_model; head_share from run times: the code's 1 would leave ties
    Assumes: head and loss on the last stage; middle ranks as full as the fullest; no virtual
             stages.
    """
    layers, last = float(model.num_layers), layout.pp - 1
    share = (layers + head_share * head_layers(model)) / layout.pp
    full = np.minimum(np.ceil(share), layers)
    rest = np.maximum(layers - np.ceil(last * share), 0.0)
    return Split(first=full[()], middle=full[()], last=np.where(last == 0, layers, rest)[()])


def _dealt(model: ModelSpec, pp: int, head_share: float) -> list[list[int]]:
    """The stages of dealt(), one after another."""
    share = (model.num_layers + head_share * head_layers(model)) / pp
    through = [min(ceil(share * (stage + 1)), model.num_layers) for stage in range(pp - 1)]
    return [[end - start] for start, end in pairwise([0, *through, model.num_layers])]


def split(model: ModelSpec, layout: Layouts, head_share: float = 0.0) -> Split:
    """Layers of the first, the middle and the last pipeline rank; with a head_share as dealt() has
    it.

    Formula: even share of L + account_for_embedding + account_for_loss, less the accounted one; or
             first, last, rest even
    Source:  [megatron-core] get_num_layers_to_build
    Assumes: the layout is legal; otherwise shares are fractions and a rule removes it.
    """
    if head_share:
        return dealt(model, layout, head_share)
    pp, layers = layout.pp, float(model.num_layers)
    even = (layers + layout.account_for_embedding + layout.account_for_loss) / pp
    set_first, set_last = np.minimum(layout.first_layers, 1), np.minimum(layout.last_layers, 1)
    rest = (layers - layout.first_layers - layout.last_layers) / np.maximum(
        pp - set_first - set_last, 1
    )
    uneven = (set_first + set_last > 0) & (np.asarray(pp) > 1)
    first = np.where(
        uneven, np.where(set_first, layout.first_layers, rest), even - layout.account_for_embedding
    )
    last = np.where(
        uneven, np.where(set_last, layout.last_layers, rest), even - layout.account_for_loss
    )
    middle = np.where(uneven, rest, even)
    alone = np.asarray(pp) == 1
    return Split(
        first=np.where(alone, layers, first)[()],
        middle=np.where(np.asarray(pp) > 2, middle, np.where(alone, layers, first))[()],
        last=np.where(alone, layers, last)[()],
    )


def moe_split(model: ModelSpec, layout: Layouts, layers: Split) -> Split:
    """How many of the first, the middle and the last rank's layers have experts; of the middle
    ranks the last one's, the most.

    Formula: sum over chunks c of below(c R + start + n) - below(c R + start); n layers a chunk, R =
             L / v layers of all ranks' chunks, start those of the ranks before, below(x) =
             moe_layers_below
    Source:  [megatron-core] --moe-layer-freq, get_transformer_layer_offset
    Assumes: chunks of a rank are equal; a legal layout.
    """
    zero = 0 * (layers.first + layout.v)
    if model.moe is None:
        return Split(zero, zero, zero)
    round_ = float(model.num_layers) / layout.v
    first, middle, last = (x / layout.v for x in (layers.first, layers.middle, layers.last))
    several = np.asarray(layout.pp) > 2
    starts = (0.0, np.where(several, round_ - last - middle, 0.0), round_ - last)
    rows = [
        _moe_of_rank(model, model.moe, layout.v, round_, start, n)
        for start, n in zip(starts, (first, middle, last), strict=True)
    ]
    first, middle, last = (np.asarray(zero + row)[()] for row in rows)
    return Split(first, middle, last)


def _moe_of_rank(
    model: ModelSpec, moe: Moe, v: Numeric, round_: Numeric, start: Numeric, n: Numeric
) -> Numeric:
    """Layers with experts among v chunks of n layers that begin at start, start + round_, ...

    Where every layer has experts but the first ones, only so many chunks can lack them.
    """
    most = int(np.max(v))
    dense: Numeric = 0.0
    for chunk in range(most if moe.moe_every > 1 else min(most, moe.first_dense_layers)):
        begin = np.round(chunk * round_ + start)
        sparse = moe_layers_below(model, np.round(begin + n)) - moe_layers_below(model, begin)
        dense = dense + np.where(chunk < np.asarray(v), n - sparse, 0.0)
    return v * n - dense


def chunk_moe_layers(model: ModelSpec, layout: Layout) -> list[list[int]]:
    """How many layers of every virtual stage of one layout have experts: [rank][chunk], as
    chunk_layers.

    Formula: below(end) - below(begin) of each chunk; all ranks' first chunks come before their
             second ones
    Source:  [megatron-core] get_transformer_layer_offset
    Assumes: one legal layout.
    """
    table = chunk_layers(model, layout)
    out = [[0] * len(row) for row in table]
    begin = 0
    for chunk, rank in (
        (chunk, rank) for chunk in range(len(table[0])) for rank in range(len(table))
    ):
        end = begin + table[rank][chunk]
        out[rank][chunk] = int(moe_layers_below(model, end) - moe_layers_below(model, begin))
        begin = end
    return out


def chunk_layers(model: ModelSpec, layout: Layout, head_share: float = 0.0) -> list[list[int]]:
    """Layers of every virtual stage of one layout: [rank][chunk].

    Formula: as split(), each rank's share over its v chunks; the accounted layer is missing in the
             first or last chunk
    Source:  [megatron-core] get_num_layers_to_build, pipeline_parallel_layer_layout
    Assumes: one legal layout.
    """
    pp, v = layout.pp, layout.v
    if layout.stage_layout:
        counts = stage_layout.layers(layout.stage_layout)
        return [
            [counts[chunk * pp + rank] for chunk in range(len(counts) // pp)] for rank in range(pp)
        ]
    if head_share:
        return _dealt(model, pp, head_share)
    share = split(model, layout)
    first, middle, last = (float(layers) for layers in (share.first, share.middle, share.last))
    ranks = [first] + [middle] * (pp - 2) + [last] * (pp > 1)
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
