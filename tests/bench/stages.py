"""Stages dealt by the dynamic programme against layouts that vendors publish: `python -m
tests.bench.stages`.

Of each published layout string both are simulated with all else fixed. A GPU gets as much memory as
the vendor's layout needs by this model's own account, where that is more than it has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.enumerate.balanced import dealt
from planner.estimate import estimate
from planner.layout import RECOMPUTE_CODE, Layout, module_mask
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.stage_layout import written
from planner.units import GIB
from tests import documents

RECIPES = "Megatron-LM dev d48bd6be0a, examples/moe_recipes"
GOLDEN = "Megatron-LM, tests/functional_tests"
BRIDGE = "Megatron-Bridge 0.3.1, recipes"


@dataclass(frozen=True)
class Published:
    """A layout string as published, or the layers of its stages."""

    source: str
    model: str
    pp: int
    v: int
    text: str
    hardware: str = "h100-sxm"
    gpus: int = 1024
    knobs: tuple[tuple[str, Any], ...] = ()
    words: tuple[tuple[str, Any], ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()

    def asked(self) -> tuple[Recipe, Layout]:
        """The question and the vendor's layout."""
        model = library.model(self.model)
        if self.changes:
            moe = model.moe.model_copy(update={"num_experts": 64}) if model.moe else None
            model = model.model_copy(update={**dict(self.changes), "moe": moe})
        words = {"seq_length": 4096, "global_batch_size": 4096, **dict(self.words)}
        recipe = documents.recipe(model, self.gpus, hardware=self.hardware, **words)
        knobs = {"pp": self.pp, "v": self.v, **dict(self.knobs)}
        return recipe, replace(documents.layout(recipe, **knobs), stage_layout=self.text)


def chosen(*modules: str) -> tuple[tuple[str, Any], ...]:
    """Selective recomputation."""
    kind = RECOMPUTE_CODE["selective"]
    return (("recompute", kind), ("recompute_modules", module_mask(list(modules))))


def runs(*sizes: tuple[int, int]) -> list[int]:
    """Layers of stages, from (layers, how many stages)."""
    return [size for size, count in sizes for _ in range(count)]


def published() -> Iterator[Published]:
    """All layouts of the sources above that name a model which is known."""
    fours = "Et*4|(tttt|)*14tmL"
    mx = ("precision", "mxfp8")
    yield Published(
        f"{RECIPES}/deepseek_v3/b200",
        "deepseek-v3",
        8,
        2,
        fours,
        "b200-sxm",
        256,
        (("ep", 32), *chosen("mla_up_proj", "mlp")),
        (mx, ("global_batch_size", 2048)),
    )
    for system, recomputed in (("gb200", chosen("mla_up_proj")), ("gb300", ())):
        yield Published(
            f"{RECIPES}/deepseek_v3/{system}",
            "deepseek-v3",
            4,
            4,
            fours,
            f"{system}-nvl72",
            256,
            (("ep", 64), *recomputed),
            (mx, ("global_batch_size", 8192)),
        )
    for text, tp, pp, v, ep, mbs, gpus, hardware in (
        ("Et*2|(tt|)*5t|tmL", 2, 4, 2, 16, 1, 128, "h100-sxm"),
        ("Et*7|t*7mL", 2, 2, 1, 8, 4, 64, "gb200-nvl72"),
    ):
        yield Published(
            f"{GOLDEN}, deepseekv3_proxy",
            "deepseek-v3",
            pp,
            v,
            text,
            hardware,
            gpus,
            (("tp", tp), ("ep", ep), ("mbs", mbs)),
            (("global_batch_size", 512),),
            (("num_layers", 14),),
        )
    of_61_layers = (
        (4, 1, runs((16, 3), (13, 1))),
        (8, 1, runs((8, 7), (5, 1))),
        (4, 2, runs((8, 7), (5, 1))),
        (16, 1, runs((4, 15), (1, 1))),
        (8, 2, runs((4, 15), (1, 1))),
        (4, 4, runs((4, 15), (1, 1))),
    )
    by_bridge = {
        "deepseek-v3": of_61_layers,
        "kimi-k2": (*of_61_layers, (2, 8, runs((4, 15), (1, 1)))),
        "moonlight-16b-a3b": (
            (2, 1, [14, 13]),
            (4, 1, [7, 7, 7, 6]),
            (2, 2, [7, 7, 7, 6]),
        ),  # those for pp 8 and pp 4, v 2 hold 31 layers of a model of 27
        "olmoe-7b": ((2, 1, [8, 8]), (4, 1, [4] * 4), (2, 2, [4] * 4)),
        "glm4.5-air-106b-a12b": (
            (4, 1, [11, 12, 12, 11]),
            (8, 1, [5, *[6] * 6, 5]),
            (16, 1, [2, *[3] * 14, 2]),
            (8, 1, [1, *[7] * 6, 3]),
            (16, 1, [0, *[3] * 14, 3]),
        ),
    }
    experts = {"olmoe-7b": 8, "moonlight-16b-a3b": 8, "glm4.5-air-106b-a12b": 8}
    for name, layouts in by_bridge.items():
        for pp, v, sizes in layouts:
            text = written(sizes, library.model(name).mtp_layers)
            knobs = (("tp", 2), ("ep", experts.get(name, 32)))
            yield Published(f"{BRIDGE}/{name}", name, pp, v, text, knobs=knobs)


def with_room(recipe: Recipe, needed_bytes: float) -> Recipe:
    """The question on a GPU with at least so much memory."""
    needed = 1.5 * needed_bytes / GIB
    memory = {"memory_gib": needed, "usable_gib": needed}
    gpu = recipe.hardware.gpu.model_copy(update=memory)
    hardware = recipe.hardware.model_copy(update={"gpu": gpu})
    return recipe.model_copy(update={"hardware": hardware})


def main() -> int:
    slower = 0
    for each in published():
        recipe, theirs = each.asked()
        before = estimate(recipe, theirs, exact=True)
        if not before.fits:
            recipe = with_room(recipe, float(before.memory_bytes))
            before = estimate(recipe, theirs, exact=True)
        ours = dealt(recipe, theirs)
        after = estimate(recipe, ours, exact=True) if ours else None
        lost = after is None or not (after.fits and after.step_s <= before.step_s * (1 + 1e-9))
        slower += int(lost)
        print(
            f"{each.source}: pp {each.pp} v {each.v} m {theirs.m}: {theirs.stage_layout}"
            f" {before.step_s:.4f} s, {before.memory_bytes / GIB:.1f} GiB;"
            + (
                f" {ours.stage_layout} {after.step_s:.4f} s"
                f" ({100 * (after.step_s / before.step_s - 1):+.2f}%),"
                f" {after.memory_bytes / GIB:.1f} GiB{' LOST' if lost else ''}"
                if ours and after
                else " none LOST"
            ),
            flush=True,
        )
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
