"""Switches of Megatron-LM that keep activations and optimizer states in host memory.

Source of flags, defaults, needs and refusals: [megatron-core] core/transformer/
transformer_config.py, core/optimizer/cpu_offloading/hybrid_optimizer.py, training/arguments.py of
0.16 to 0.19.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import (
    NO_WORDS,
    Need,
    Plain,
    Spelling,
    Switch,
    Value,
    setting,
    words_of,
)

MODULES = (
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "expert_fc1",
    "moe_act",
)
INSIDE_EXPERTS = {"expert_fc1", "moe_act"}


def _modules(recipe: Recipe) -> set[str]:
    return set(words_of(setting(recipe, "offload_modules", NO_WORDS)))


def _projection_with_attention(recipe: Recipe, layout: Layouts) -> Mask:
    modules = _modules(recipe)
    return np.asarray("attn_proj" not in modules or "core_attn" in modules)


def _experts_kept(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(not _modules(recipe) & INSIDE_EXPERTS) | (layout.drops("moe") == 0)


def _has_the_modules(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.model.moe is not None or not _modules(recipe) & INSIDE_EXPERTS)


def _no_whole_graph(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(setting(recipe, "cuda_graph", "none") != "full_iteration")


def _no_graph(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(setting(recipe, "cuda_graph", "none") == "none")


def _keeps_some(recipe: Recipe, layout: Layouts) -> Mask:
    """Activations of some layers are kept, not recomputed."""
    return ~layout.recomputes_all


def _sends(recipe: Recipe, layout: Layouts) -> Mask:
    return _keeps_some(recipe, layout) & bool(_modules(recipe))


def _fewer_than_all(recipe: Recipe, layout: Layouts) -> Mask:
    layers = setting(recipe, "cpu_offloading_num_layers", 0)
    assert isinstance(layers, int)
    return np.asarray(layers < recipe.model.num_layers)


def _optimizer_away(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.offload) > 0


def _read_modules(plain: Plain) -> Value | None:
    stated = plain.get("offload_modules")
    if not plain.get("fine_grained_activation_offloading") or not stated:
        return None
    listed = stated if isinstance(stated, list) else str(stated).replace(",", " ").split()
    return "+".join(word for word in MODULES if word in listed) or None


def _sets(recipe: Recipe) -> tuple[str, ...]:
    """Each module alone, attention's core with its projection, all of them."""
    of_model = [word for word in MODULES if recipe.model.moe or word not in INSIDE_EXPERTS]
    alone = [word for word in of_model if word != "attn_proj"]
    return (*alone, "core_attn+attn_proj", "+".join(of_model))


SWITCHES = (
    Switch(
        "offload_modules",
        "Modules whose saved tensors wait in host memory for the backward pass.",
        (),
        NO_WORDS,
        "same",
        (
            Spelling(
                NO_WORDS,
                (("--fine-grained-activation-offloading",), ("--offload-modules", "{words}")),
                (0, 16),
                environment=(("NVTE_CPU_OFFLOAD_V1", "1"),),
                bridge=(
                    ("model.fine_grained_activation_offloading", True),
                    ("model.offload_modules", "{words}"),
                ),
            ),
        ),
        "frees what the modules save, all layers but two of a rank; the link to the host carries it"
        " beside compute, and what does not fit into that time is exposed",
        "[megatron-core] core/pipeline_parallel/fine_grained_activation_offload.py; bytes counted",
        acts=_keeps_some,
        needs=(
            Need(
                "an offloaded projection goes with its attention",
                _projection_with_attention,
                "attn_proj reads the output that core_attn saves, so that offload_modules must name"
                " both",
                "add core_attn",
            ),
            Need(
                "offloaded modules of experts",
                _has_the_modules,
                "expert_fc1 and moe_act lie inside experts, of which {recipe.model.name} has none",
                "leave expert_fc1 and moe_act out of offload_modules",
            ),
            Need(
                "offloaded experts are not recomputed",
                _experts_kept,
                "expert_fc1 and moe_act are offloaded where experts are not recomputed, but got"
                " recompute_modules {knobs[recompute_modules]}",
                "leave moe out of the recomputed modules",
            ),
            Need(
                "offloaded modules and no graph of all",
                _no_whole_graph,
                "a graph of the whole iteration must bound the offloads in flight, which is not"
                " written, but got cuda_graph full_iteration with offload_modules",
                "try cuda_graph layers",
            ),
        ),
        read=_read_modules,
        words=MODULES,
        searched=_sets,
        frees=True,
    ),
    Switch(
        "activation_offload_fraction",
        "Share of the groups of tensors of offload_modules that go, those of the first layers.",
        (),
        1.0,
        "same",
        (
            Spelling(
                1.0,
                (("--activation-offload-fraction", "{value}"),),
                (0, 19),
                bridge=(("model.activation_offload_fraction", "{value}"),),
            ),
        ),
        "less to the host: less memory freed, less on the link",
        "[megatron-core] core/pipeline_parallel/fine_grained_activation_offload.py",
        acts=_sends,
        share=True,
    ),
    Switch(
        "cpu_offloading_num_layers",
        "First layers whose saved tensors, all of them, wait in host memory.",
        (),
        0,
        "same",
        (
            Spelling(
                0,
                (("--cpu-offloading-num-layers", "{value}"),),
                (0, 16),
                bridge=(
                    ("model.cpu_offloading", True),
                    ("model.cpu_offloading_num_layers", "{value}"),
                ),
            ),
        ),
        "frees what those layers save but for one; the transfers are spread over the passes of all"
        " layers, and what outlasts these is exposed",
        "[megatron-core] core/transformer/transformer_block.py; [transformer-engine]"
        " pytorch/cpu_offload.py; bytes counted",
        needs=(
            Need(
                "offloaded layers and no pipeline",
                lambda recipe, layout: np.asarray(layout.pp) == 1,
                "cpu_offloading_num_layers works without a pipeline, but got pp={layout.pp}",
                "try pp=1, or offload_modules",
            ),
            Need(
                "offloaded layers and no recomputation",
                lambda recipe, layout: np.asarray(layout.recompute) == 0,
                "cpu_offloading_num_layers works without recomputation, but got recompute="
                "{knobs[recompute]}",
                "try recompute none, or offload_modules",
            ),
            Need(
                "a layer at least stays",
                _fewer_than_all,
                "cpu_offloading_num_layers must be less than the layers of {recipe.model.name},"
                " {recipe.model.num_layers}",
                "try fewer",
            ),
            Need(
                "offloaded layers and no modules",
                lambda recipe, layout: np.asarray(not _modules(recipe)),
                "whole layers are offloaded or modules of all, but got both",
                "leave out cpu_offloading_num_layers or offload_modules",
            ),
            Need(
                "offloaded layers and no graph",
                _no_graph,
                "layers are offloaded where nothing is captured, but got a cuda_graph",
                "try cuda_graph none",
            ),
        ),
    ),
    Switch(
        "optimizer_offload_fraction",
        "Share of the optimizer that is on the host where the layout offloads it.",
        (),
        1.0,
        "same",
        (
            Spelling(
                1.0,
                (("--optimizer-offload-fraction", "{value}"),),
                bridge=(("optimizer.optimizer_offload_fraction", "{value}"),),
            ),
        ),
        "states, transfers and the update on the host, each in proportion",
        "[megatron-core] core/optimizer/cpu_offloading/hybrid_optimizer.py; Qwen3-30B on 16 H100:"
        " 996, 1,871, 2,484, 3,187 and 4,189 ms at 0, 25, 50, 75 and 100% (Megatron-Bridge"
        " docs/training/cpu-offloading.md)",
        exists=_optimizer_away,
        share=True,
    ),
    Switch(
        "overlap_cpu_optimizer_d2h_h2d",
        "Gradients and weights of some parameters travel while the host updates others.",
        (False, True),
        False,
        "same",
        (
            Spelling(False, bridge=(("optimizer.overlap_cpu_optimizer_d2h_h2d", False),)),
            Spelling(
                True,
                (("--overlap-cpu-optimizer-d2h-h2d",),),
                bridge=(("optimizer.overlap_cpu_optimizer_d2h_h2d", True),),
            ),
        ),
        "hides the transfers of an offloaded optimizer behind its update",
        "[megatron-core] core/optimizer/cpu_offloading/hybrid_optimizer.py; Qwen3-30B on 16 H100:"
        " 4,189 to 3,877 ms (Megatron-Bridge docs/training/cpu-offloading.md)",
        exists=_optimizer_away,
    ),
)
