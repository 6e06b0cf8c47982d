"""What Gemma 3n and 4 have beside attention and MLP: several streams of the hidden state (AltUp),
a low-rank product beside attention (Laurel), inputs of each layer's own.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.cost.layer.gemms import Product, outside
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

LAUNCH_US = {"altup": (200.0, 350.0), "laurel": (30.0, 50.0), "inputs": (50.0, 80.0)}
"""CPU time of their kernels, forward and backward: by their number, a guess."""


class Streams(NamedTuple):
    """Of one token and layer, without the matrix products."""

    streamed: float
    """Bytes moved forward; twice as many backward."""
    kept: float
    """Bytes that autograd keeps."""
    launch_us: tuple[float, float]


def streams(model: ModelSpec) -> Streams:
    """What one layer moves and keeps of them.

    Formula: n streams: 18 passes of 2 n h bytes: they are predicted from one another (copied,
             multiplied, added, copied) and corrected by what the layer changed (repeated, scaled,
             added, added); kept 6 n h - 2 h: before and after prediction and the change, of which
             the norm of attention has one; Laurel 10 h, kept 2 h + 2 r; inputs p wide 8 h, kept 6 h
             + 8 p
    Source:  [hf-transformers] Gemma3nTextAltUp, Gemma3nTextLaurelBlock, Gemma3nTextDecoderLayer:
             tensors counted
    Assumes: 2-byte elements; operations apart, as they are there.
    """
    n, h, inputs = model.altup_streams, model.hidden_size, model.per_layer_inputs
    parts = {"altup": n > 0, "laurel": model.laurel_rank > 0, "inputs": inputs is not None}
    width = inputs.width if inputs else 0
    launched = [LAUNCH_US[name] for name, there in parts.items() if there]
    return Streams(
        streamed=36.0 * n * h + 10.0 * h * parts["laurel"] + 8.0 * h * parts["inputs"],
        kept=(6.0 * n - 2) * h * parts["altup"]
        + 2.0 * (h + model.laurel_rank) * parts["laurel"]
        + (6.0 * h + 8 * width) * parts["inputs"],
        launch_us=(sum(each[0] for each in launched), sum(each[1] for each in launched)),
    )


def stream_products(recipe: Recipe, layout: Layouts, count: Numeric) -> tuple[Product, ...]:
    """Their matrix products in one layer, for `count` tokens, of which each rank has its own.

    Formula: AltUp twice n from h, n^2 and n from n, and n streams from n; Laurel r from h, h from
             r; inputs p from h, h from p
    Source:  [hf-transformers] Gemma3nTextDecoderLayer
    Assumes: nothing of it is split; the products of n wide matrices are memory traffic, which
             streams() has.
    """
    model, own, h = recipe.model, count / outside(layout), recipe.model.hidden_size
    widths = [model.laurel_rank, model.per_layer_inputs.width if model.per_layer_inputs else 0]
    trained = trains(recipe, "mlp")
    out: tuple[Product, ...] = ()
    for width in filter(None, widths):
        pair = Product(own, width, h, trained=trained), Product(own, h, width, trained=trained)
        out = (*out, *pair)
    return out


def stream_matmul_params(model: ModelSpec) -> float:
    """Elements of the matrices with which one layer multiplies a token, its streams' coefficients
    too.

    Formula: AltUp 2 h n + n^3 + n^2 + h n^2; Laurel 2 h r; inputs 2 h p
    Source:  [hf-transformers] Gemma3nTextAltUp, Gemma3nTextLaurelBlock
    Assumes: prediction is a product of n streams with n^2 coefficients of each token.
    """
    n, h, inputs = model.altup_streams, float(model.hidden_size), model.per_layer_inputs
    return (
        2 * h * n
        + n**3
        + n**2
        + h * n**2
        + 2 * h * model.laurel_rank
        + 2 * h * (inputs.width if inputs else 0)
    )


def entry_matrices(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Outputs and inputs of the products before the first layer: the further streams, and the
    inputs of all layers.
    """
    h, inputs = model.hidden_size, model.per_layer_inputs
    layers = ((model.num_layers * inputs.width, h),) if inputs else ()
    return (*exit_matrices(model), *layers)


def exit_matrices(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Those behind the last layer: the further streams joined."""
    h = model.hidden_size
    return ((h, h),) * (model.streams - 1)


def between_stages(model: ModelSpec) -> int:
    """Elements of a token that travel between pipeline stages.

    Formula: n h, and L p of the layers' own inputs
    Source:  [hf-transformers] Gemma3nTextModel: made once, of the embedding
    Assumes: the first boundary's, where nearly all layers' inputs travel.
    """
    inputs = model.per_layer_inputs
    return model.streams * model.hidden_size + model.num_layers * (inputs.width if inputs else 0)
