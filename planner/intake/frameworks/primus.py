"""AMD Primus: an experiment that names a model file and overrides it; `${VAR:default}` inside, 0
and 1 for booleans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.intake.documents.tree import Leaf, last, last_value, location, under
from planner.intake.frameworks import megatron_yaml, torchtitan
from planner.intake.frameworks.vocabulary import (
    Named,
    doubted,
    make_reading,
    named,
    substituted,
    truth,
)
from planner.intake.reading import Reading, Value

SECTIONS = ("modules",)
FRAMEWORKS = ("megatron", "megatron_bridge", "torchtitan")
VARIABLE = re.compile(r"\$\{(?P<name>[^:{}]+)(?::(?P<default>[^}]*))?\}")
SWITCHES = frozenset(
    {
        "sequence_parallel",
        "use_distributed_optimizer",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "swiglu",
        "bf16",
        "fp16",
        "group_query_attention",
        "multi_latent_attention",
        "untie_embeddings_and_output_weights",
        "use_torch_fsdp2",
        "use_flash_attn",
        "moe_grouped_gemm",
        "gradient_accumulation_fusion",
        "tp_comm_overlap",
        "add_bias_linear",
        "qk_layernorm",
        "enable_primus_turbo",
    }
)
DEFAULTS: dict[str, Any] = {
    "bf16": True,
    "use_distributed_optimizer": True,
    "sequence_parallel": True,
    "use_flash_attn": True,
    "micro_batch_size": 2,
    "global_batch_size": 16,
    "seq_length": 1024,
    "position_embedding_type": "learned_absolute",
    "untie_embeddings_and_output_weights": True,
    "add_bias_linear": False,
    "swiglu": True,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "normalization": "LayerNorm",
    "gradient_accumulation_fusion": True,
    "make_vocab_size_divisible_by": 128,
    "transformer_impl": "transformer_engine",
}
"""What differs from Megatron's own defaults. Source: [primus]
primus/configs/modules/megatron/{pre_trainer,trainer_base}.yaml and
models/megatron/language_model.yaml."""
MODEL_ALONE = frozenset(
    {
        "position_embedding_type",
        "untie_embeddings_and_output_weights",
        "add_bias_linear",
        "swiglu",
        "normalization",
    }
)
"""Defaults that a model's own file restates: not taken where that file is not at hand."""


def trainer(leaves: Sequence[Leaf]) -> str | None:
    """The module that trains."""
    modules = [leaf.path[1] for leaf in leaves if leaf.path[0] == "modules" and len(leaf.path) > 2]
    trainers = [name for name in modules if name.endswith("trainer")]
    return next(iter(trainers or modules), None)


def model_file(leaves: Sequence[Leaf]) -> str | None:
    """The name of the model file that the experiment takes."""
    module = trainer(leaves)
    name = last_value(leaves, "modules", module or "", "model")
    return name if isinstance(name, str) else None


def reading(
    leaves: Sequence[Leaf],
    file: str,
    notes: Sequence[str] = (),
    *,
    model: Sequence[Leaf] = (),
    sets: Mapping[str, Any] | None = None,
) -> Reading:
    """The overrides of the training module on the leaves of its model file (`model`; empty where
    that is not beside the experiment).
    """
    flat = substituted(leaves, sets or {}, VARIABLE)
    module = trainer(flat) or "pre_trainer"
    framework = last(flat, "modules", module, "framework")
    model_leaf = last(flat, "modules", module, "model")
    overrides = under(flat, "modules", module, "overrides")
    named_model = model_file(flat)
    trains = str(framework.value) if framework is not None else "megatron"
    if trains not in FRAMEWORKS:
        name = file.rsplit("/", 1)[-1]
        raise InputError(
            f"a Primus experiment must train with {', '.join(FRAMEWORKS)}, but {name} does with"
            f" {trains[:40]}"
        )
    if trains == "torchtitan":
        out = torchtitan.reading([*model, *overrides], file, notes)
        values = out.values
        if model_leaf and named_model:
            value = Value(_stem(named_model), model_leaf.origin, location(model_leaf))
            values = {"model": value, **values}
        return replace(out, kind="primus", values=values)
    base = [
        Leaf((name,), value, origin="default", where="Primus")
        for name, value in DEFAULTS.items()
        if trains == "megatron" and (model or name not in MODEL_ALONE)
    ]
    names = [_name(leaf) for leaf in (*base, *substituted(model, sets or {}, VARIABLE), *overrides)]
    notes = list(notes)
    if model_leaf and named_model and not model:
        stem = _stem(named_model)
        names.append(Named("model", model_leaf, stem))
        notes.append(
            f"{named_model} is not beside the file: the model is taken by its name, {stem}"
        )
    flat_names, near = doubted(names, exact=False)
    return make_reading(file, "primus", "megatron", flat_names, notes=[*notes, *near])


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].removesuffix(".yaml").removesuffix(".yml")


def _name(leaf: Leaf) -> Named:
    key = megatron_yaml.argument(".".join(leaf.path))
    if key in SWITCHES:
        value = truth(leaf.value)
        return Named(key, leaf, value) if value is not leaf.value else named(key, leaf)
    return named("fp8_format" if key == "fp8" else key, leaf)


def extends(leaves: Sequence[Leaf]) -> list[str]:
    """Files that a model file builds on, first to last."""
    names = last_value(leaves, "extends")
    return [str(name)[:200] for name in names] if isinstance(names, list) else []
