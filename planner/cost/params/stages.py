"""Which layers each pipeline stage has.

Columns know three kinds of ranks: the first (embedding), those between, the last (head and loss).
One layout is split exactly, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import ceil
from operator import add

import numpy as np

from planner.cost.unique_rows import once_per
from planner.errors import InputError
from planner.layout import Layout, Layouts, Numeric
from planner.specs import stage_layout
from planner.specs.layers import below, kinds, layer_kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of a pipeline rank, or of a virtual stage, by kind."""

    of: tuple[Numeric, ...]
    """In the order of specs.layers.kinds()."""

    @property
    def total(self) -> Numeric:
        return reduce(add, self.of)

    def __mul__(self, times: Numeric) -> Layers:
        return Layers(tuple(count * times for count in self.of))

    def __truediv__(self, parts: Numeric) -> Layers:
        return Layers(tuple(count / parts for count in self.of))

    def times(self, each: Iterable[Numeric]) -> Numeric:
        """The sum of what the layers of each kind have or take."""
        return reduce(add, (count * value for count, value in zip(self.of, each, strict=True)))


def one(model: ModelSpec, index: int) -> Layers:
    """A single layer: that of an index, from the end where it is negative."""
    kind = layer_kinds(model)[index]
    return Layers(tuple(float(name == kind) for name in kinds(model)))


def one_of_each(model: ModelSpec) -> tuple[Layers, ...]:
    """A single layer of each kind."""
    named = tuple(kinds(model))
    return tuple(Layers(tuple(float(name == kind) for name in named)) for kind in named)


@dataclass(frozen=True, slots=True)
class Split:
    """Layers of pipeline ranks, all virtual stages of a rank together."""

    first: Layers
    middle: Layers
    """Of the ranks between; as the first when there are none. Of their kinds those of the last of
    them.
    """
    last: Layers


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Layers of a pipeline rank, whatever their kinds."""

    first: Numeric
    middle: Numeric
    last: Numeric


def head_layers(model: ModelSpec) -> float:
    """The head's products in layers.

    Formula: V h / (4 a d h + 3 f h)
    Source:  [nanotron] get_block_compute_costs
    Assumes: as that software counts: every query head has its own keys and values, and the MLP is
             gated.
    """
    return model.vocab_size / (4 * model.query_size + 3 * model.ffn_size)


def dealt(model: ModelSpec, layout: Layouts, head_share: float) -> _Sizes:
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
    return _Sizes(first=full[()], middle=full[()], last=np.where(last == 0, layers, rest)[()])


def _dealt(model: ModelSpec, pp: int, head_share: float) -> list[list[int]]:
    """The stages of dealt(), one after another."""
    share = (model.num_layers + head_share * head_layers(model)) / pp
    through = [min(ceil(share * (stage + 1)), model.num_layers) for stage in range(pp - 1)]
    return [[end - start] for start, end in pairwise([0, *through, model.num_layers])]


def _sizes(model: ModelSpec, layout: Layouts, head_share: float = 0.0) -> _Sizes:
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
    return _Sizes(
        first=np.where(alone, layers, first)[()],
        middle=np.where(np.asarray(pp) > 2, middle, np.where(alone, layers, first))[()],
        last=np.where(alone, layers, last)[()],
    )


_KNOBS = (
    "pp",
    "v",
    "account_for_embedding",
    "account_for_loss",
    "first_layers",
    "last_layers",
)


@once_per(lambda recipe: _KNOBS)
def split(recipe: Recipe, layout: Layouts) -> Split:
    """Layers of the first, a middle and the last pipeline rank, by kind; of the middle ranks' kinds
    those of the last one.

    Formula: sum over chunks c of below(c R + start + n) - below(c R + start); n layers a chunk, R =
             L / v layers of all ranks' chunks, start those of the ranks before
    Source:  [megatron-core] get_transformer_layer_offset
    Assumes: chunks of a rank are equal; a legal layout.
    """
    model = recipe.model
    sizes = _sizes(model, layout, recipe.software.quirks.stage_head_share)
    if len(kinds(model)) == 1:
        return Split(Layers((sizes.first,)), Layers((sizes.middle,)), Layers((sizes.last,)))
    round_ = float(model.num_layers) / layout.v
    first, middle, last = (x / layout.v for x in (sizes.first, sizes.middle, sizes.last))
    several = np.asarray(layout.pp) > 2
    starts = (0.0 * last, np.where(several, round_ - last - middle, 0.0), round_ - last)
    ranks = zip(starts, (first, middle, last), strict=True)
    return Split(*(_of_rank(model, layout.v, round_, start, n) for start, n in ranks))


def _of_rank(model: ModelSpec, v: Numeric, round_: Numeric, start: Numeric, n: Numeric) -> Layers:
    """Layers of v chunks of n layers that begin at start, start + round_, ..."""
    columns = np.broadcast(v, round_, start, n).ndim
    chunk = np.arange(int(np.max(v))).reshape(-1, *[1] * columns)
    begin, there = chunk * round_ + start, chunk < np.asarray(v)
    pairs = zip(below(model, begin), below(model, begin + n), strict=True)
    held = (np.where(there, end - before, 0.0) for before, end in pairs)
    return Layers(tuple(count.sum(axis=0)[()] for count in held))


def chunk_kinds(recipe: Recipe, layout: Layout) -> list[list[Layers]]:
    """Layers of every virtual stage of one layout by kind: [rank][chunk], as chunk_layers.

    Formula: below(end) - below(begin) of each chunk; all ranks' first chunks come before their
             second ones
    Source:  [megatron-core] get_transformer_layer_offset
    Assumes: one legal layout. Raises InputError where a stage would have less than no layers.
    """
    model = recipe.model
    table = chunk_layers(model, layout, recipe.software.quirks.stage_head_share)
    least = min(map(min, table))
    if least < 0:
        raise InputError(f"every stage must have 0 or more layers, but one would have {least}")
    in_order = np.cumsum([0, *np.array(table).T.ravel()])
    held = np.array([np.diff(count) for count in below(model, in_order)])
    by_chunk = held.T.reshape(-1, len(table), len(held))
    return [[Layers(tuple(row.tolist())) for row in chunks] for chunks in by_chunk.swapaxes(0, 1)]


def chunk_layers(model: ModelSpec, layout: Layout, head_share: float = 0.0) -> list[list[int]]:
    """Layers of every virtual stage of one layout: [rank][chunk].

    Formula: as split(), each rank's share over its v chunks; the accounted layer is missing in the
             first or last chunk
    Source:  [megatron-core] get_num_layers_to_build, pipeline_parallel_layer_layout
    Assumes: one legal layout.
    """
    if head_share and not layout.stage_layout:
        return _dealt(model, layout.pp, head_share)
    flat, pp = stage_layout.dealt(model.num_layers, layout), layout.pp
    chunks = range(len(flat) // pp)
    return [[flat[chunk * pp + rank] for chunk in chunks] for rank in range(pp)]
