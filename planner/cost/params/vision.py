"""How many parameters a vision tower and what projects its output have."""

from __future__ import annotations

from planner.specs.model import Vision
from planner.specs.recipe import Recipe


def tower_params(vision: Vision) -> int:
    """Parameters of a vision tower and its projector.

    Formula: layers (4 h^2 + (3 or 2) h f + biases + norms) + outside + projector
    Source:  [hf-transformers] built on the meta device
    Assumes: heads of h / num_heads; biases as the document says.
    """
    h, f = vision.hidden_size, vision.ffn_size
    branches = 2 if vision.gated_mlp else 1
    layer = (
        4 * h * h
        + (4 * h if vision.bias == "qkvo" else 0)
        + (branches + 1) * h * f
        + (branches * f + h if vision.mlp_bias else 0)
        + vision.norms_per_layer * h * (2 if vision.norm == "layernorm" else 1)
        + (2 * h // vision.num_heads if vision.qk_norm else 0)
    )
    return vision.num_layers * layer + vision.outside_parameters + vision.projector_parameters


def tower_in(recipe: Recipe) -> int:
    """Parameters of the tower that a question trains or runs, all of them on each rank of the first
    stage; 0 of text alone.
    """
    return tower_params(recipe.tower) if recipe.tower else 0
