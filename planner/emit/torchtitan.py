"""A recipe and a layout as a torchtitan run: a Python file of its configuration for 0.3, the TOML
that 0.2 reads beside it; for 0.2 the TOML alone.
"""

from __future__ import annotations

import math
from typing import Any

from planner.emit import comments, presets, switches, torchtitan_toml
from planner.emit.program import Flag, Program, gpus_per_node
from planner.emit.switches import Format
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, SCHEDULES, Layout, module_names
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS
from planner.specs.switches.switch import setting

Sections = dict[str, dict[str, Any]]
"""Words of a configuration with their values, by section."""
SCRIPT, TOML = "torchtitan_plan.py", "torchtitan.toml"
OLDER = TORCHTITANS[0]
MODELS = {
    "llama3.2-1b": ("llama3", "1B"),
    "llama3.2-3b": ("llama3", "3B"),
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}
"""Module and flavor of torchtitan's own models. Source: [torchtitan] models/*/__init__.py of 0.3.0.
"""
SINGLE = {"1f1b": "1F1B", "gpipe": "GPipe"}
LOOPED = {
    "interleaved": "Interleaved1F1B",
    "interleaved-torch": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
}
V_SHAPED = {"zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
NAMES = {**SINGLE, **LOOPED, **V_SHAPED}
"""Schedules by torch's names. Source: torch.distributed.pipelining.schedules.get_schedule_class."""
CONVERTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8-rowwise": (
        "Float8LinearConverter",
        {"recipe_name": "rowwise", "filter_fqns": ["lm_head"], "model_compile_enabled": True},
    ),
    "mxfp8": ("MXFP8LinearConverter", {"model_compile_enabled": True}),
    "nvfp4": ("NVFP4LinearConverter", {"fqns": ["layers"], "model_compile_enabled": True}),
}
"""What replaces the linears, and its words; the head stays in 16 bits where it would not by itself.
"""


def flavor(model: ModelSpec) -> tuple[str, str]:
    """torchtitan's module and flavor of a model. InputError where it has none of these sizes."""
    name = presets.same(model, MODELS)
    if name:
        return MODELS[name]
    raise InputError(
        f"torchtitan's model must be one that it builds ({', '.join(MODELS)}), but got"
        f" {model.name}; try --framework megatron, or --format accelerate with a script of your own"
    )


def pipeline(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """Stages, their layers, the schedule by torch's name. InputError for a split or a schedule that
    torchtitan does not make.
    """
    if layout.pp == 1:
        return {}
    _check_schedule(layout)
    if layout.stage_layout or layout.first_layers or layout.last_layers:
        raise InputError(
            "torchtitan's stages must be even, with embedding and loss counted as layers, but got a"
            " stage layout or first and last layers; try --account-for-embedding and"
            " --account-for-loss"
        )
    counted = recipe.model.num_layers + layout.account_for_embedding + layout.account_for_loss
    stages = layout.pp * layout.v
    if counted % stages:
        out = (
            f"try v {math.gcd(counted // layout.pp, layout.v)}"
            if counted % layout.pp == 0
            else f"try pp {math.gcd(counted, layout.pp)}"
        )
        raise InputError(
            "pp * v must divide the layers (with what stands for embedding and loss), but got"
            f" {layout.pp} * {layout.v} and {counted} layers; {out}"
        )
    return {
        "pipeline_parallel_degree": int(layout.pp),
        "pipeline_parallel_schedule": NAMES[SCHEDULES[layout.schedule]],
        "pipeline_parallel_layers_per_stage": int(counted // stages),
        "pipeline_parallel_microbatch_size": int(layout.mbs),
        "pipeline_parallel_first_stage_less_layers": int(layout.account_for_embedding),
        "pipeline_parallel_last_stage_less_layers": int(layout.account_for_loss),
    }


def _check_schedule(layout: Layout) -> None:
    name = SCHEDULES[layout.schedule]
    if name not in NAMES:
        raise InputError(f"torchtitan's schedules are {', '.join(NAMES)}, but got {name}; try 1f1b")
    if (layout.v > 1) != (name not in SINGLE) or (name in V_SHAPED and layout.v != 2):
        want = "1" if name in SINGLE else "2" if name in V_SHAPED else "2 or more"
        raise InputError(
            f"torch's {NAMES[name]} must have {want} stages a rank, but got v={layout.v}; try v"
            f" {want[0]}"
        )
    rounds = max(layout.m // layout.pp, 1)
    if name in ("interleaved", "interleaved-torch", "interleaved-zb") and layout.m % rounds:
        raise InputError(
            f"torch's {NAMES[name]} runs micro-batches in m // pp = {rounds} equal rounds, but got"
            f" m={layout.m}; try m {layout.m // layout.pp * layout.pp}"
        )
    if name == "dualpipev" and layout.m < 2 * layout.pp:
        raise InputError(
            f"torch's DualPipeV needs 2 * pp = {2 * layout.pp} micro-batches or more, but got"
            f" m={layout.m}"
        )


def parallelism(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """Degrees by torchtitan's names; weights are gathered again for the backward pass under
    zero 3 (the default without a pipeline, and the one that a CUDA graph captures).
    """
    if layout.etp > 1:
        raise InputError(
            f"torchtitan splits experts over ep alone, but got etp={layout.etp}; try etp 1"
        )
    if layout.tp > 1 and recipe.model.moe and layout.ep == 1:
        raise InputError(
            f"torchtitan splits experts over tp where ep is 1, but got tp={layout.tp}, ep=1, etp=1;"
            f" try ep {layout.tp}"
        )
    resharded = "default" if setting(recipe, "cuda_graphs", False) else "always"
    out: dict[str, Any] = {
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": int(layout.dp),
        "fsdp_reshard_after_forward": resharded if layout.zero == 3 else "never",
        "tensor_parallel_degree": int(layout.tp),
        "context_parallel_degree": int(layout.cp),
        "expert_parallel_degree": int(layout.ep),
    }
    return out | pipeline(recipe, layout)


def training(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """Batch and arithmetic: a pipeline cuts the local batch, without one it is repeated."""
    local = layout.mbs * layout.m if layout.pp > 1 else layout.mbs
    kind = "float32" if recipe.precision == "fp32" else "bfloat16"
    return {
        "local_batch_size": int(local),
        "global_batch_size": int(layout.gbs),
        "seq_len": recipe.seq_length,
        "mixed_precision_param": kind,
    }


def check(recipe: Recipe, layout: Layout) -> None:
    """Raises InputError for what no torchtitan has a word for."""
    if recipe.precision not in ("bf16", "fp32", *CONVERTERS):
        raise InputError(
            f"torchtitan computes in bf16, fp32, {', '.join(CONVERTERS)}, but got"
            f" {recipe.precision}; try bf16"
        )
    if recipe.attention != "flash":
        raise InputError(
            "torchtitan's attention is compiled or FlashAttention (flash), but got"
            f" {recipe.attention}; try --attention flash"
        )
    if recipe.optimizer != "adam":
        raise InputError(
            f"torchtitan's optimizer here is adam, but got {recipe.optimizer}; try --framework"
            " deepspeed or --script"
        )
    modules = module_names(layout.recompute_modules)
    if layout.recompute == RECOMPUTE_CODE["selective"] and modules != ["ops"]:
        raise InputError(
            "torchtitan's selective recomputation chooses operations (ops), not modules, but got"
            f" {', '.join(modules)}; try --recompute-modules ops, or --recompute full"
        )


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory. InputError for
    what torchtitan cannot express.
    """
    if script:
        raise InputError(
            "torchtitan trains by its own script, but got one; leave --script out, or try --format"
            " accelerate"
        )
    check(recipe, layout)
    model = flavor(recipe.model)
    sections: Sections = {
        "training": training(recipe, layout),
        "parallelism": parallelism(recipe, layout),
    }
    start = _start_older if recipe.versions.torchtitan == OLDER else _start_newest
    note, entry, flags, data, files = start(recipe, layout, sections, model)
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=(
            *comments.plan(recipe, layout, comments.torch(recipe)),
            note,
            *expected,
        ),
        variables=_VARIABLES,
        environment=(
            *switches.environment(recipe, layout),
            ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"),
        ),
        groups=(("TITAN", flags),) if flags else (),
        data_switch=data,
        entry=entry,
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
        files=files,
    )


Start = tuple[str, str, tuple[Flag, ...], str, tuple[tuple[str, str], ...]]
"""What a version is started by: a comment, the entry, its flags, bash text of the data, files."""


def _start_newest(
    recipe: Recipe, layout: Layout, sections: Sections, model: tuple[str, str]
) -> Start:
    """The Python file, which starts itself; the TOML lies beside it where 0.2 can say the plan."""
    files = [(SCRIPT, module_text(recipe, layout, sections, model))]
    note = f"torchtitan 0.3: {SCRIPT} beside this file"
    try:
        files.append((TOML, _toml(recipe, layout, sections, model)))
        note += f"; 0.2 reads {TOML}"
    except InputError:
        pass
    flags = (("--module", SCRIPT.removesuffix(".py")), ("--config", "plan"))
    return note, f"$FILES/{SCRIPT}", flags, _DATA, tuple(files)


def _start_older(
    recipe: Recipe, layout: Layout, sections: Sections, model: tuple[str, str]
) -> Start:
    """torchtitan's own module with the TOML. InputError where 0.2 cannot say the plan.

    Source: [torchtitan] run_train.sh and config/manager.py of 0.2.2.
    """
    text = _toml(recipe, layout, sections, model)
    note = f"torchtitan {OLDER}: {TOML} beside this file"
    return note, "--module torchtitan.train", (), _OLDER_DATA, ((TOML, text),)


def _toml(recipe: Recipe, layout: Layout, known: Sections, model: tuple[str, str]) -> str:
    """The file of 0.2. InputError where it has no words for the plan or one of its switches."""
    tables = torchtitan_toml.sections(recipe, layout, known, model)
    return torchtitan_toml.text(with_switches(recipe, layout, tables, "toml"), recipe, layout)


def with_switches(recipe: Recipe, layout: Layout, known: Sections, format: Format) -> Sections:
    """Sections with what the recipe's switches add; ranks that share a copy's shards are what its
    copies leave of dp. InputError where the format has no words for one.
    """
    out = {name: dict(words) for name, words in known.items()}
    for name, words in switches.configuration(recipe, layout, format).items():
        out.setdefault(name, {}).update(words)
    split = out["parallelism"]
    split["data_parallel_shard_degree"] //= split["data_parallel_replicate_degree"]
    return out


_VARIABLES = (
    ("ASSETS", "assets/hf", "folder of the tokenizer"),
    ("DATASET", "c4", "dataset that torchtitan knows"),
    ("STEPS", "1000", "steps"),
)
_DATA = (
    'DATA_FLAGS=(--hf_assets_path "$ASSETS" --dataloader.dataset "$DATASET" --training.steps'
    ' "$STEPS")'
)
_OLDER_DATA = (
    f'DATA_FLAGS=(--job.config_file "$FILES/{TOML}" --model.hf_assets_path "$ASSETS"\n'
    '  --training.dataset "$DATASET" --training.steps "$STEPS")'
)
_PARTLY = '''

class FirstLayers(FullAC):
    """Recomputes the first layers of every stage, the others keep their activations."""

    @dataclass(kw_only=True, slots=True)
    class Config(FullAC.Config):
        layers: int = 1

    def apply(self, model):
        blocks = model.get_submodule("layers")
        for name, block in list(blocks.named_children())[: self.config.layers]:
            blocks.register_module(name, self._wrap_block(block, base_fqn=f"layers.{name}"))
'''
_MODULE = '''"""{title}

torchtitan 0.3 reads this: `--module {module} --config plan`.
"""
{first}
{losses}
from torchtitan.components.optimizer import default_adamw
{converter}from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
{recompute}from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.{family} import model_registry
from torchtitan.trainer import Trainer
{partly}

def plan() -> Trainer.Config:
    model = model_registry({registry})
    loss = {loss}.Config(global_vocab_size=decoder_vocab_size(model))
    optimizer = default_adamw(lr=3e-4){optimizer}
    return Trainer.Config(
        model_spec=model,
        loss={whole_loss},
        optimizer=optimizer,
        training=TrainingConfig(
{training}
        ),
        parallelism=ParallelismConfig(
{parallelism}
        ),
        activation_checkpoint={policy},
        compile=CompileConfig({compile}),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
    )


if __name__ == "__main__":
    from torchtitan.train import main

    main()
'''


_LOSSES = {
    False: ("CrossEntropyLoss", "torchtitan.components.loss"),
    True: ("MTPLoss", "torchtitan.models.deepseek_v3.mtp"),
}
"""Loss and where it lies; of a model that predicts several tokens another one."""


def module_text(recipe: Recipe, layout: Layout, sections: Sections, model: tuple[str, str]) -> str:
    """The Python file: a function that gives torchtitan's configuration, and the start of its
    training.
    """
    policy = _policy(layout)
    converter, words = CONVERTERS.get(recipe.precision, ("", {}))
    parts = with_switches(recipe, layout, sections, "titan")
    split = parts["parallelism"] | {"enable_sequence_parallel": bool(layout.sp)}
    partly = "FirstLayers" in policy
    policy_class = "SelectiveAC" if "SelectiveAC" in policy else "FullAC"
    chunks = parts.get("loss", {}).get("num_chunks")
    loss, home = _LOSSES[bool(recipe.model.mtp_layers)]
    wrapped = f"ChunkedLossWrapper.Config(num_chunks={chunks}, loss_fn=loss)"
    return _MODULE.format(
        title=comments.plan(recipe, layout, comments.torch(recipe))[0],
        module=SCRIPT.removesuffix(".py"),
        family=model[0],
        first="\nfrom dataclasses import dataclass\n" if partly else "",
        partly=_PARTLY if partly else "",
        converter=(
            f"from torchtitan.components.quantization import {converter}\n" if converter else ""
        ),
        recompute=(
            f"from torchtitan.distributed.activation_checkpoint import {policy_class}\n"
            if policy != "None"
            else ""
        ),
        losses=f"from {home} import {'ChunkedLossWrapper, ' if chunks else ''}{loss}",
        loss=loss,
        whole_loss=wrapped if chunks else "loss",
        optimizer="".join(
            f"\n    optimizer.{name} = {_literal(value)}"
            for name, value in parts.get("optimizer", {}).items()
        ),
        compile=_words(parts["compile"]),
        registry=_registry(
            recipe,
            layout,
            model,
            parts.get("registry", {}),
            f"{converter}.Config({_words(words)})" if converter else "",
        ),
        training=_lines(parts["training"]),
        parallelism=_lines(split),
        policy=policy,
    )


def _registry(
    recipe: Recipe,
    layout: Layout,
    model: tuple[str, str],
    words: dict[str, Any],
    converter: str,
) -> str:
    out = [f'"{model[1]}"', *([_words(words)] if words else [])]
    if model[0] == "gpt_oss" and layout.cp > 1:
        out.append('attn_backend="flex"')  # its default attends to whole sequences alone
    if recipe.model.mtp_layers:
        out.append(f"num_mtp_layers={recipe.model.mtp_layers}")
    return ", ".join([*out, *([f"converters=[{converter}]"] if converter else [])])


def _policy(layout: Layout) -> str:
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        return "SelectiveAC.Config()"
    if layout.recompute != RECOMPUTE_CODE["full"]:
        return "None"
    return (
        f"FirstLayers.Config(layers={layout.recompute_layers})"
        if layout.recompute_layers
        else "FullAC.Config()"
    )


def _words(words: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_literal(value)}" for name, value in words.items())


def _lines(words: dict[str, Any]) -> str:
    return "\n".join(f"            {name}={_literal(value)}," for name, value in words.items())


def _literal(value: Any) -> str:
    """Python text with double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
