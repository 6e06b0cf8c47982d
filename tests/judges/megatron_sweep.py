"""Random legal layouts of many questions: what the sweep with Megatron-LM's own parser runs
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from planner.cost.params import layer, stages
from planner.emit import environment, megatron
from planner.emit.megatron_model import missing_features
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.specs import library
from planner.specs.layers import kinds, mtp_kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.software import Software
from planner.specs.switches.switch import Value
from planner.specs.switches.table import available, with_switches
from planner.specs.versions import version_of
from tests import documents
from tests.judges.megatron_oracle import Case
from tests.judges.tried import Tried, Wanted, around, together

MEGATRON_STACKS = (
    "megatron",
    "megatron",
    "megatron-2022",
    "megatron-2021",
    "nemo",
    "nemo-2025",
    "megatron-fsdp2",
)
PRECISIONS = ("bf16", "fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4")
LANES = {"bf16": "bf16", "nvfp4": "fp4"}
"""Rates of the GPU that a precision needs, where they are not those of 8 bits."""
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MODULES = tuple(
    module_mask(names)
    for names in (
        [],
        ["mlp"],
        ["core_attn", "mlp"],
        ["moe_act"],
        ["moe", "mla_up_proj"],
        ["shared_experts", "core_attn"],
        ["layernorm", "moe_act"],
    )
)
DRAWN = 10_000
"""Layouts drawn for one question; the rules leave some of them."""


@lru_cache(maxsize=8)
def presets(version: str = "0.19") -> list[str]:
    """The models that Megatron-LM of a version can express."""
    models, known = map(library.model, library.models()), version_of("megatron", version)
    return [
        model.name
        for model in models
        if "megatron" in model.frameworks and not missing_features(model, known)
    ]


def software(
    rng: np.random.Generator,
    precision: str,
    version: str,
    settings: dict[str, Value],
    wanted: Wanted | None,
) -> Software:
    """A stack of the version under settings, in fp16 none that it cannot have, and the wanted
    one.
    """
    stack, _ = available(library.stack(str(rng.choice(MEGATRON_STACKS))), version)
    if precision == "fp16" or 1 not in stack.zero_stages:
        settings = settings | {"use_precision_aware_optimizer": False}
    return with_switches(stack, together("megatron", settings, wanted))


def question(
    rng: np.random.Generator,
    settings: dict[str, Value],
    wanted: Wanted | None = None,
    version: str = "0.19",
) -> Recipe:
    """Model, machine, batch, sequence length, precision and stack at random, as far as they go
    together.
    """
    document = library.model(str(rng.choice(presets(version))))
    hardware, gpus = library.hardware(str(rng.choice(library.clusters()))), int(rng.choice(GPUS))
    known = [name for name in PRECISIONS if LANES.get(name, "fp8") in hardware.gpu.peak_tflops]
    precision = str(rng.choice([*known, *known, "fp16", "fp32"]))
    return documents.recipe(
        document,
        gpus,
        hardware=hardware,
        software=software(rng, precision, version, settings, wanted),
        seq_length=min(document.max_seq_length, 8192),
        global_batch_size=int(max(rng.choice([128, 256, 480, 1024, 2048]), gpus // 8)),
        precision=precision,
        framework_version=version,
        attention=str(rng.choice(["flash", "flash", "fused", "unfused"])),
        optimizer=str(rng.choice(["adam"] * 9 + ["sgd", "muon", "lion"])),
    )


def draw(rng: np.random.Generator, recipe: Recipe, count: int = DRAWN) -> Layout:
    """Layouts whose GPUs and batch are right where that is possible; much else about them may be
    illegal.
    """

    def pick(*values: int) -> np.ndarray:
        return rng.choice(np.array(values), count)

    tp, pp, cp = (
        pick(1, 2, 3, 4, 5, 8, 16),
        pick(1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 32),
        pick(1, 1, 1, 2, 4),
    )
    v, mbs, recompute = pick(1, 1, 2, 3, 4, 5, 8), pick(1, 2, 4), pick(*RECOMPUTE_CODE.values())
    dp = np.maximum(recipe.gpus // (tp * pp * cp), 1)
    uneven = pick(0, 0, 0, 1)
    experts = (
        {"ep": pick(1, 2, 4, 8, 16, 32, 64), "etp": pick(1, 1, 2, 4)} if recipe.model.moe else {}
    )
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        v=v,
        mbs=mbs,
        m=np.maximum(recipe.global_batch_size // (dp * mbs), 1),
        sp=np.where(tp > 1, pick(0, 1, 1), 0) * recipe.software.sequence_parallel,
        zero=pick(*recipe.software.zero_stages),
        schedule=np.where(v > 1, SCHEDULE_CODE["interleaved"], SCHEDULE_CODE["1f1b"]),
        group=pick(0, 0, 0, 4, 8),
        recompute=recompute,
        recompute_modules=np.where(recompute == RECOMPUTE_CODE["selective"], pick(*MODULES), 0),
        recompute_layers=np.where(recompute == RECOMPUTE_CODE["full"], pick(0, 0, 1, 2, 5), 0),
        account_for_embedding=pick(0, 0, 1) * (1 - uneven),
        account_for_loss=pick(0, 0, 1) * (1 - uneven),
        first_layers=uneven * pick(0, 1, 2, 4, 6, 9),
        last_layers=uneven * pick(0, 1, 2, 4, 6, 9),
        offload=pick(0, 0, 0, OFFLOAD_CODE["optimizer-cpu"]),
        cp_a2a=np.where(cp > 1, pick(1, 1, 2, 4), 1),
        **experts,
    )


def command(name: str, recipe: Recipe, layout: Layout, build: bool = False) -> Case:
    """The flags and environment that are written for a layout."""
    flags = [word for flag in megatron.flags(recipe, layout) for word in flag]
    env: dict[str, str | None] = dict(environment.megatron(recipe, layout))
    return Case(name, flags, recipe.gpus, env, int(recipe.hardware.gpu.compute_capability), build)


def commands(
    seed: int, questions: int, each: int, version: str = "0.19", tried: Tried | None = None
) -> Iterator[tuple[Recipe, Layout, Case]]:
    """Questions at random over presets, clusters and sizes, each around the value of a switch that
    was tried least; of each a few legal layouts.
    """
    rng = np.random.default_rng(seed)
    tried = tried or Tried("megatron", version)
    ask = partial(question, version=version)
    for index in range(questions):
        yield from around(rng, tried, each, ask, draw, partial(_named, index))


def _named(index: int, recipe: Recipe, layout: Layout) -> Case:
    name = f"{index} {recipe.model.name} {recipe.hardware.name} {recipe.gpus} {layout.named()}"
    return command(name, recipe, layout)


def expected_stages(recipe: Recipe, layout: Layout) -> list[list[dict[str, int]]]:
    """Chunks of every rank by our own count, as Megatron-LM builds them on a CPU."""
    model, tp = recipe.model, layout.tp
    each = [
        layer.layer_params(kind, tp)
        + layer.routed_layer_params(kind, layout.ep, layout.etp)
        - built_otherwise(kind, tp)
        - correction(kind)
        for kind in kinds(model).values()
    ]
    out = [
        [{"layers": int(chunk.total), "params": int(chunk.times(each))} for chunk in chunks]
        for chunks in stages.chunk_kinds(recipe, layout)
    ]
    out[0][0]["params"] += int(layer.embedding_params(model, tp))
    predictions = layer.mtp_stage_params(model, layout) - model.mtp_sets * sum(
        built_otherwise(kind, tp) + correction(kind) for kind in mtp_kinds(model)
    )
    out[-1][-1]["params"] += int(
        layer.head_params(model, layout) + predictions - layer.norm_params(model)
    )
    order = [chunk for chunks in zip(*out, strict=True) for chunk in chunks]
    [*_, end] = (
        [chunk for chunk in order if chunk["layers"]] if layout.stage_layout else order
    )  # behind the last layer that is named
    end["params"] += layer.norm_params(model)
    return out


def built_otherwise(model: ModelSpec, tp: int) -> int:
    """Weights of a layer that Transformer Engine has on every rank and the CPU's modules split over
    tp: MLA's down-projections.
    """
    if not model.mla or model.mixer:
        return 0
    down = (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank + model.mla.qk_rope_dim
    return model.hidden_size * down - model.hidden_size * down // tp


def correction(model: ModelSpec) -> int:
    """The balancing bias is a buffer there, no parameter."""
    moe = model.moe if model.has_mlp else None
    return moe.num_experts if moe and moe.router_bias == "correction" else 0
