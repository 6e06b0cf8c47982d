"""Which frameworks can be written and which launchers can start them."""

from __future__ import annotations

from collections.abc import Callable

from planner.emit import launchers, megatron
from planner.emit.comments import Expected, expectation
from planner.emit.program import Program
from planner.errors import InputError, unknown
from planner.layout import Layout
from planner.specs.recipe import Recipe

FRAMEWORKS: dict[str, Callable[[Recipe, Layout, tuple[str, ...]], Program]] = {"megatron": megatron.program}
LAUNCHERS: dict[str, tuple[str, Callable[[Program], str]]] = {
    "torchrun": ("launch.sh", launchers.torchrun),
    "slurm": ("launch.sbatch", launchers.slurm),
}
"""Name of the file and how to write it."""


def files(recipe: Recipe, layout: Layout, estimate: Expected | None, launcher: str = "torchrun") -> dict[str, str]:
    """Launch files of one layout by name.

    Raises InputError for an unknown launcher, a framework that has no writer, and a model that the framework cannot express.
    """
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    if recipe.framework not in FRAMEWORKS:
        raise InputError(f"launch files can be written for {', '.join(FRAMEWORKS)}, but got {recipe.framework}, which can be planned alone")
    expected = expectation(estimate) if estimate is not None else ()
    name, write = LAUNCHERS[launcher]
    return {name: write(FRAMEWORKS[recipe.framework](recipe, layout, expected))}
