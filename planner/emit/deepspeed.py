"""A recipe and a layout as a DeepSpeed run: the JSON, a training script, and the flags that tell it
the model.
"""

from __future__ import annotations

from importlib import resources

from planner.emit import comments, deepspeed_config, megatron_deepspeed, switches, training
from planner.emit.program import Flag, Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.deepspeed import in_megatron
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

CONFIG, SCRIPT = "ds_config.json", "train.py"
ACTIVATIONS = ("silu", "gelu", "squared_relu")


def missing_features(model: ModelSpec) -> list[str]:
    """What the model has and train.py does not build."""
    other = megatron_deepspeed.unlike_plain(model)
    other += ["another norm of queries and keys"] * (model.qk_norm_kind != "per_head")
    return other + [model.activation] * (model.activation not in ACTIVATIONS)


def model_flags(recipe: Recipe) -> list[Flag]:
    """The network of train.py. InputError names what it cannot build."""
    model = recipe.model
    missing = missing_features(model)
    if missing:
        raise InputError(
            f"the training script must build every part of the model, but {model.name} has"
            f" {', '.join(missing)}; give your own with --script PATH"
        )
    sizes = (
        "num_layers",
        "hidden_size",
        "ffn_size",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "vocab_size",
    )
    flags: list[Flag] = [
        (f"--{name.replace('_', '-')}", str(getattr(model, name))) for name in sizes
    ]
    flags += [
        ("--seq-length", str(recipe.seq_length)),
        ("--activation", model.activation),
        ("--norm", model.norm),
        ("--position", model.position),
        ("--attention-bias", model.attention_bias),
    ]
    if model.position == "rope":
        flags.append(("--rope-theta", str(model.rope_theta)))
    switches = ("gated_mlp", "mlp_bias", "qk_norm", "tied_embeddings")
    return flags + [(f"--{name.replace('_', '-')}",) for name in switches if getattr(model, name)]


def run_flags(recipe: Recipe, layout: Layout) -> list[Flag]:
    """What of the layout is no matter of the JSON: stages, recomputation, the attention kernel."""
    flags: list[Flag] = [("--pipeline-stages", str(layout.pp))] * (layout.pp > 1)
    if layout.recompute == RECOMPUTE_CODE["full"]:
        layers = layout.recompute_layers or recipe.model.num_layers // layout.pp
        flags.append(("--recompute-layers", str(layers)))
    flags += [("--unfused-attention",)] * (recipe.attention == "unfused")
    return flags + switches.flags(recipe, layout)


def left_to_the_script(recipe: Recipe, layout: Layout) -> list[str]:
    """What the figures below it count on and DeepSpeed cannot do for a model of one's own."""
    lines = []
    if layout.recompute == RECOMPUTE_CODE["full"]:
        of_stage = recipe.model.num_layers // layout.pp
        lines.append(
            f"the script must checkpoint {layout.recompute_layers or of_stage} of the {of_stage}"
            " layers of a stage"
        )
    else:
        lines.append("the script must checkpoint no layer's activations")
    if layout.ep > 1:
        how = f"ep_size={layout.ep} of deepspeed.moe's MoE" if layout.zero <= 2 else "AutoEP"
        lines.append(f"the script must split the experts over {layout.ep} ranks ({how})")
    if ("--liger-loss",) in switches.flags(recipe, layout):
        lines.append("the script must fuse head and loss by Liger (use_liger_kernel)")
    return [*lines, f"the script must use {recipe.attention} attention"]


def requirements(recipe: Recipe, layout: Layout, own_script: bool = False) -> tuple[str, ...]:
    """What is not in the JSON, in words: the arguments of PipelineModule, how the layout is run,
    and what a script of one's own must do.
    """
    lines = [f"zero {layout.zero}, {CONFIG} beside this file"]
    if own_script:
        lines += left_to_the_script(recipe, layout)
    if layout.cp > 1:
        lines.append(f"Ulysses: {layout.cp} ranks share a sequence and exchange heads for tokens")
    if layout.pp > 1:
        lines += [
            (
                f"PipelineModule(layers, num_stages={layout.pp}, partition_method='type:Block',"
                " activation_checkpoint_interval=0)"
            ),
            "1F1B, v 1: DeepSpeed's pipeline has no interleaving (virtual stages)",
        ]
    return tuple(lines)


def environment(recipe: Recipe, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Fewer holes in the allocator's memory; NCCL keeps no record of streams."""
    return (*switches.environment(recipe, layout), ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"))


_OWN_DATA = "DATA_FLAGS=()"
_STEPS = 'DATA_FLAGS=(--steps "$STEPS")'


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory.

    script: the user's own training script, which gets --deepspeed and --deepspeed_config alone.
    """
    if in_megatron(recipe, layout):
        return megatron_deepspeed.program(recipe, layout, expected, script)
    if "deepspeed" not in recipe.model.frameworks and not script:
        raise InputError(
            f"DeepSpeed's script must build the model, but {recipe.model.name} is for"
            f" {', '.join(recipe.model.frameworks)}"
        )
    flags = (
        ()
        if script
        else (("MODEL", tuple(model_flags(recipe))), ("RUN", tuple(run_flags(recipe, layout))))
    )
    files = [(CONFIG, deepspeed_config.text(recipe, layout, own_script=script is not None))]
    if not script:
        files.append(
            (
                SCRIPT,
                resources.files("planner.emit.scripts")
                .joinpath(SCRIPT)
                .read_text(encoding="utf-8"),
            )
        )
    steps = (("STEPS", "20", "steps on random tokens"),)
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=(
            *comments.plan(recipe, layout, f"DeepSpeed {recipe.framework_version}"),
            *requirements(recipe, layout, script is not None),
            *expected,
        ),
        variables=() if script else steps,
        environment=environment(recipe, layout)
        + (training.layout_variables(recipe, layout) if script else ()),
        groups=(
            *((name, group) for name, group in flags if group),
            ("DEEPSPEED", (("--deepspeed",),)),
        ),
        data_switch=(_OWN_DATA if script else _STEPS)
        + f'\nDEEPSPEED_FLAGS+=(--deepspeed_config "$FILES/{CONFIG}")',
        entry=escaped(script) if script else f"$FILES/{SCRIPT}",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
        files=tuple(files),
    )
