"""The vision tower in front of the first stage: its layers as those of a model whose sequence is
the patches of an image, and what they take.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from planner.cost.layer.embedding_and_head import NO_TOWER, EndsTime
from planner.cost.layer.gemms import Product, products_s
from planner.cost.layer.kinds import layer_time
from planner.cost.layer.layer import LayerTime
from planner.cost.params.stages import Layers
from planner.cost.params.trained import trains
from planner.layout import RECOMPUTE_CODE, Layouts
from planner.specs.layers import counts
from planner.specs.model import Kind, ModelSpec, Vision, Window
from planner.specs.recipe import Recipe
from planner.specs.software import Software
from planner.specs.switches.switch import Value
from planner.specs.switches.table import BY_FRAMEWORK, with_switches
from planner.specs.workload import FROZEN

UNGRAPHED: dict[str, Value] = {"cuda_graph": "none", "cuda_graphs": False}
"""Switches that hold for the layers of the text alone: images differ in size and number. Source:
[megatron-bridge] model card of Qwen3.6-35B-A3B.
"""


@lru_cache(maxsize=128)
def as_model(tower: Vision, patches: int) -> ModelSpec:
    """The layers of a tower, whose patches see all of an image, or those of their window."""
    whole = Window(tokens=patches, kind="both_ways")
    fields: dict[str, Any] = {
        "name": "vision tower",
        "family": "vision",
        "hidden_size": tower.hidden_size,
        "ffn_size": tower.ffn_size,
        "num_layers": tower.num_layers,
        "num_heads": tower.num_heads,
        "num_kv_heads": tower.num_heads,
        "head_dim": tower.hidden_size // tower.num_heads,
        "vocab_size": 1,
        "max_seq_length": patches,
        "gated_mlp": tower.gated_mlp,
        "activation": "gelu",
        "tied_embeddings": True,
        "norm": tower.norm,
        "norms_per_layer": tower.norms_per_layer,
        "position": "none",
        "attention_bias": tower.bias,
        "mlp_bias": tower.mlp_bias,
        "qk_norm": tower.qk_norm,
        "source": "the model's own tower",
    }
    if not tower.window_pixels:
        return ModelSpec(**fields, window=whole)
    seen = min((tower.window_pixels // tower.patch_size) ** 2, patches)
    near = Window(tokens=max(seen, 1), kind="both_ways")
    named = ("full" if i in tower.full_layers else "near" for i in range(tower.num_layers))
    kinds = (Kind(name="full", window=whole), Kind(name="near", window=near))
    return ModelSpec(**fields, kinds=kinds, pattern=" ".join(named))


def as_recipe(recipe: Recipe, tower: Vision) -> Recipe:
    """The question that the tower alone would be: a sequence is an image, all is trained or
    nothing, in 16 bits (as Hugging Face's classes are).
    """
    patches = tower.patches(recipe.image_size or 0)
    wide = recipe.precision if recipe.precision in ("fp16", "fp32") else "bf16"
    alone = {
        "model": as_model(tower, patches),
        "software": _in_the_open(recipe.software),
        "seq_length": patches,
        "precision": wide,
        "lora": None,
        "frozen": () if trains(recipe, "vision") else FROZEN,
        "packing": None,
        "mean_length": None,
        "images_per_sample": None,
    }
    return recipe.model_copy(update=alone)


def _in_the_open(software: Software) -> Software:
    """Without CUDA graphs and without activations in host memory."""
    known = BY_FRAMEWORK[software.framework]
    settings = {name: value for name, value in UNGRAPHED.items() if name in known}
    plain = with_switches(software, settings)
    return plain.with_figures({"offload.modules": (), "offload.layers": 0})


def as_layout(recipe: Recipe, layout: Layouts) -> Layouts:
    """Every rank of tp and cp runs the whole tower over all images of its sequences; Megatron-LM
    recomputes none of it, the others what they recompute of the text.
    """
    again = layout.recomputes_all & (recipe.framework != "megatron")
    return replace(
        layout,
        tp=1,
        cp=1,
        cp_a2a=1,
        ep=1,
        etp=1,
        sp=0,
        mbs=layout.mbs * recipe.images_per_sequence,
        recompute=np.where(again, RECOMPUTE_CODE["full"], RECOMPUTE_CODE["none"]),
        recompute_layers=0,
        recompute_modules=0,
    )


def tower_layers(question: Recipe) -> Layers:
    """How many layers of each kind it has."""
    return Layers(tuple(map(float, counts(question.model))))


def tower_time(recipe: Recipe, layout: Layouts) -> LayerTime:
    """The vision tower on the images of a micro-batch, all its layers together.

    Formula: layers of as_model(), attention both ways, patches in place of tokens; products of
             patches (values to h) and of the projector, patches / patches_per_token rows of its
             parameters; frozen: no backward pass
    Source:  [hf-transformers] vision classes; [megatron-core] core/models/multimodal/llava_model.py
             and [megatron-bridge] models/qwen_vl: on the first stage, whole on each rank of tp
    Assumes: images of one size, their number even over micro-batches; norms, biases and positions
             around the layers take nothing; gradients of tp ranks are alike.
    """
    tower = recipe.tower
    if tower is None or not recipe.images_per_sample:
        return NO_TOWER
    question, own = as_recipe(recipe, tower), as_layout(recipe, layout)
    layers = tower_layers(question)
    times = [layer_time(kind, own) for kind in question.kinds]
    summed = {f.name: layers.times(getattr(x, f.name) for x in times) for f in fields(LayerTime)}
    patches, joined = own.mbs * question.seq_length, tower.hidden_size * tower.patches_per_token
    rows, width = patches / tower.patches_per_token, tower.projector_parameters / joined
    enters = products_s(question, own, (Product(patches, tower.hidden_size, tower.patch_values),))
    leaves = products_s(question, own, (Product(rows, width, joined),))
    trained = trains(recipe, "vision")
    around = {
        "gemm_forward_s": enters[0] + leaves[0],
        "gemm_input_s": leaves[1] * trained,  # pixels get no gradient
        "gemm_weight_s": (enters[2] + leaves[2]) * trained,
    }
    return LayerTime(**summed | {name: summed[name] + more for name, more in around.items()})


def with_tower(ends: EndsTime, tower: LayerTime) -> EndsTime:
    """The ends' time with the tower before the embedding."""
    return replace(
        ends,
        tower=tower,
        embedding_forward_s=ends.embedding_forward_s + tower.forward_s,
        embedding_backward_s=ends.embedding_backward_s + tower.backward_s,
    )
