"""Time of the layers of each kind, and of the mean layer of a pipeline rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from planner.cost.layer.gemms import Product
from planner.cost.layer.layer import Kind, LayerTime, dense, kind_time
from planner.cost.layer.moe import experts
from planner.cost.params.stages import Layers, Split
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


def layer_time(recipe: Recipe, layout: Layouts) -> LayerTime:
    """One layer of one micro-batch, of a model whose layers are alike (Recipe.kinds)."""
    return kind_time(recipe, layout, _kind(recipe, layout))


def layer_products(recipe: Recipe, layout: Layouts) -> tuple[Product, ...]:
    """Its matrix products."""
    return _kind(recipe, layout).products


def _kind(recipe: Recipe, layout: Layouts) -> Kind:
    moe = recipe.model.moe
    return dense(recipe, layout) if moe is None else experts(recipe, layout, moe)


@dataclass(frozen=True, slots=True)
class Times:
    """Time of a layer: of each kind, and the mean on the first, the middle and the last rank, made
    where it is asked for.
    """

    kinds: tuple[LayerTime, ...]
    layers: Split

    @property
    def first(self) -> LayerTime:
        return mean_time(self.kinds, self.layers.first)

    @property
    def middle(self) -> LayerTime:
        return mean_time(self.kinds, self.layers.middle)

    def of_slowest(self, is_first: Numeric, is_last: Numeric) -> LayerTime:
        """The mean layer of the rank that sets the pace."""
        ranks = zip(self.layers.first.of, self.layers.middle.of, self.layers.last.of, strict=True)
        slowest = Layers(
            tuple(
                np.where(is_last, last, np.where(is_first, first, middle))[()]
                for first, middle, last in ranks
            )
        )
        return mean_time(self.kinds, slowest)

    @property
    def seconds(self) -> tuple[Numeric, ...]:
        """Forward and backward pass of a layer of each kind."""
        return tuple(kind.forward_s + kind.backward_s for kind in self.kinds)

    def total(self, layers: Layers, of: Callable[[LayerTime], Numeric]) -> Numeric:
        """A time of so many layers."""
        return layers.times(of(layer) for layer in self.kinds)


def mean_time(kinds: tuple[LayerTime, ...], layers: Layers) -> LayerTime:
    """The mean of so many layers of each kind.

    Formula: sum over kinds of layers of the kind / all layers * its time
    Source:  [megatron-core] --moe-layer-freq
    Assumes: nothing beyond the split.
    """
    if len(kinds) == 1:
        return kinds[0]
    share = layers / np.maximum(layers.total, 1e-9)
    return LayerTime(
        **{
            f.name: share.times(getattr(layer, f.name) for layer in kinds)
            for f in fields(LayerTime)
        }
    )
