"""Random legal DeepSpeed layouts of many questions: what the sweep with the real configuration
class runs over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from planner.emit import deepspeed, deepspeed_config
from planner.layout import OFFLOADS, RECOMPUTE_CODE, Layout
from planner.specs import library
from planner.specs.deepspeed import in_megatron
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Value
from planner.specs.switches.table import with_switches
from planner.specs.workload import Lora
from tests import documents
from tests.judges.deepspeed_oracle import Case
from tests.judges.tried import Tried, Wanted, around, together

GPUS = (1, 2, 8, 16, 24, 64, 128, 512, 1024, 4096)
VERSIONS = ("0.16", "0.17", "0.18", "0.19", "main")
DRAWN = 5_000
"""Layouts drawn for one question; the rules leave some of them."""


@lru_cache(maxsize=1)
def presets() -> list[str]:
    """The models that the training script builds."""
    return [
        name for name in library.models() if not deepspeed.missing_features(library.model(name))
    ]


def question(
    rng: np.random.Generator, settings: dict[str, Value], wanted: Wanted | None = None
) -> Recipe:
    """Model, machine, batch, sequence length, precision, version at random, as far as they go
    together.
    """
    document = library.model(str(rng.choice(presets())))
    hardware, gpus = library.hardware(str(rng.choice(library.clusters()))), int(rng.choice(GPUS))
    hardware = hardware.model_copy(
        update={
            "node": hardware.node.model_copy(
                update={"nvme_gbytes_per_s": float(rng.choice([0, 12]))}
            )
        }
    )
    precisions = ["fp16", "fp32", *["bf16", "bf16"] * ("bf16" in hardware.gpu.peak_tflops)]
    software = library.stack("deepspeed")
    return documents.recipe(
        document,
        gpus,
        hardware=hardware,
        software=with_switches(software, together("deepspeed", settings, wanted)),
        framework="deepspeed",
        framework_version=str(rng.choice(VERSIONS)),
        seq_length=int(min(document.max_seq_length, rng.choice([2048, 4096, 8192]))),
        global_batch_size=int(max(rng.choice([64, 96, 256, 480, 1024]), gpus // 4)),
        precision=str(rng.choice(precisions)),
        attention=str(rng.choice(["flash", "unfused"])),
        optimizer=str(rng.choice(["adam"] * 9 + ["sgd", "muon", "lion"])),
        lora=Lora(rank=16) if rng.random() < 0.1 else None,
    )


def draw(rng: np.random.Generator, recipe: Recipe, count: int = DRAWN) -> Layout:
    """Layouts whose GPUs and batch are right where that is possible; much else about them may be
    illegal.
    """

    def pick(*values: int) -> np.ndarray:
        return rng.choice(np.array(values), count)

    tp, pp, cp = pick(1, 1, 2, 3, 4, 8), pick(1, 1, 2, 3, 4, 8, 10), pick(1, 1, 1, 2, 4, 8)
    mbs, recompute = pick(1, 2, 3, 4), pick(*RECOMPUTE_CODE.values())
    dp = np.maximum(recipe.gpus // (tp * pp * cp), 1)
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        mbs=mbs,
        m=np.maximum(recipe.global_batch_size // (dp * mbs), 1),
        v=pick(1, 1, 1, 2),
        zero=pick(0, 1, 2, 3),
        offload=pick(0, 0, *range(len(OFFLOADS))),
        hpz=pick(1, 1, 2, 8, recipe.hardware.node.gpus),
        recompute=recompute,
        recompute_layers=np.where(recompute == RECOMPUTE_CODE["full"], pick(0, 0, 1, 2, 9), 0),
        first_layers=pick(0, 0, 0, 1),
    )


def case(name: str, recipe: Recipe, layout: Layout) -> Case:
    """The configuration that is written for a layout, and who reads it: the engine alone, or a
    module that knows its groups.
    """
    grouped = layout.pp > 1 or bool(in_megatron(recipe, layout))
    return Case(name, deepspeed_config.config(recipe, layout), recipe.gpus, layout.dp, grouped)


def cases(
    seed: int, questions: int, each: int, tried: Tried | None = None
) -> Iterator[tuple[Recipe, Layout, Case]]:
    """Questions at random over presets, clusters and sizes, each around the value of a switch that
    was tried least; of each a few legal layouts.
    """
    rng = np.random.default_rng(seed)
    tried = tried or Tried("deepspeed", VERSIONS[-1])
    for index in range(questions):
        yield from around(rng, tried, each, question, draw, partial(_named, index))


def _named(index: int, recipe: Recipe, layout: Layout) -> Case:
    name = f"{index} {recipe.model.name} {recipe.hardware.name} {recipe.gpus} {layout.named()}"
    return case(name, recipe, layout)
