"""What the free search loses to a fixed knob: `python -m tests.bench.regret 300 1` asks so many
random questions by a seed over presets, clusters and frameworks, each with 12 random fixings of one
to three knobs or switches, and prints every one that beats the free answer, and how far plan 1 is
from it.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.search import SearchResult, search
from planner.specs import library, resolve
from planner.specs.question import from_words
from planner.specs.recipe import Bounds, Recipe
from planner.specs.switches.alternatives import keeping_arithmetic

FIXINGS = 12
KNOBS = ("tp", "pp", "cp", "mbs", "sp", "ep", "v", "zero", "offload", "recompute", "dp")
GPUS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512, 1024)


def question(draw: random.Random) -> Recipe | None:
    gpus = draw.choice(GPUS)
    words: dict[str, Any] = {
        "model": draw.choice(library.models()),
        "gpus": gpus,
        "cluster": draw.choice(library.clusters()),
        "framework": draw.choice(("megatron", "megatron", "torch", "deepspeed")),
        "seq_length": draw.choice((1024, 2048, 4096, 8192, 16384, 32768)),
        "global_batch_size": draw.choice((1, 2, 4, 8, 16)) * draw.choice((gpus, 8, 32)),
    }
    try:
        return resolve.recipe(from_words(words))
    except InputError:
        return None


def fixed(
    recipe: Recipe, free: SearchResult, draw: random.Random
) -> tuple[Recipe, dict[str, Any], set[str]]:
    """Knobs as a layout has them that was looked at, and switches at any value that keeps the
    arithmetic, each alone or up to three together: the question, what is fixed, and which of it
    are switches.
    """
    computed = free.computed
    assert computed is not None
    layout = computed.layout[draw.randrange(len(computed.step_s))]
    switches = [other.switch.name for other in keeping_arithmetic(recipe)]
    bounds, said, stated = {}, {}, set[str]()
    for name in draw.sample([*KNOBS, *switches], draw.choice((1, 1, 2, 3))):
        if name in KNOBS:
            said[name] = value = int(getattr(layout, name))
            bounds[name] = Bounds(low=value, high=value)
            continue
        others = [one for one in keeping_arithmetic(recipe, stated) if one.switch.name == name]
        if not others:
            continue
        other = draw.choice(others)
        recipe, stated = other.taken(recipe), stated | {*other.settings}
        said |= other.settings
    return recipe.model_copy(update={"knobs": bounds}), said, stated


def main(count: int, seed: int) -> None:
    draw, asked, compared, lost, unproved = random.Random(seed), 0, 0, 0, 0
    behind: list[float] = []
    seconds: list[float] = []
    while asked < count:
        recipe = question(draw)
        if recipe is None:
            continue
        free = search(recipe, 2, ())
        seconds.append(free.seconds)
        if not free.plans:
            continue
        asked += 1
        unproved += not free.proved
        fastest = float(free.fastest.estimate.step_s)
        behind.append(float(free.plans[0].estimate.step_s) / fastest - 1)
        for _ in range(FIXINGS):
            other, said, stated = fixed(recipe, free, draw)
            found = search(other, 2, stated)
            compared += 1
            if found.plans and found.fastest.estimate.step_s < fastest * (1 - 1e-9):
                lost += free.proved
                gain = 1 - float(found.fastest.estimate.step_s) / fastest
                name = f"{recipe.model.name} {recipe.gpus} {recipe.hardware.name}"
                print(
                    f"{name} {recipe.software.name} {recipe.seq_length} {recipe.global_batch_size}:"
                    f" {said} is {gain:.3%} faster ({found.fastest.layout} before"
                    f" {free.fastest.layout}; proved: {free.proved})",
                    flush=True,
                )
    print(
        f"{asked} questions, {compared} fixings: {lost} beat a proved answer; {unproved} are not"
        f" proved; plan 1 at most {max(behind):.2%} behind; a search takes {np.median(seconds):.2f}"
        f" s, at most {max(seconds):.1f} s"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
