"""Which frameworks can be written, for which software, and which launchers can start them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.emit import (
    accelerate,
    bridge,
    deepspeed,
    kubernetes,
    launchers,
    megatron,
    skypilot,
    torchtitan,
    training,
)
from planner.emit.comments import Expected, expectation, numerics
from planner.emit.program import Program
from planner.emit.switches import wordless
from planner.errors import InputError, unknown
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS
from planner.specs.switches import table as switches
from planner.specs.switches.switch import Switches

Writer = Callable[[Recipe, Layout, tuple[str, ...], str | None], Program]

FRAMEWORKS: dict[str, Writer] = {
    "megatron": megatron.program,
    "deepspeed": deepspeed.program,
    "torch": torchtitan.program,
}
FORMATS: dict[str, Writer] = {"accelerate": accelerate.program, "bridge": bridge.program}
"""Software beside the framework's own that reads a plan of it, too."""
LAUNCHERS: dict[str, tuple[str, Callable[[Program], str]]] = {
    "torchrun": ("launch.sh", launchers.torchrun),
    "slurm": ("launch.sbatch", launchers.slurm),
    "deepspeed": ("launch.deepspeed.sh", launchers.deepspeed),
    "kubernetes": ("launch.k8s.yaml", kubernetes.kubernetes),
    "skypilot": ("launch.sky.yaml", skypilot.skypilot),
}
"""Name of the file and how to write it."""
STARTED_FILES: dict[str, Callable[[Program], tuple[tuple[str, str], ...]]] = {
    "skypilot": skypilot.started_files
}
"""Files that a launcher's file starts but does not contain."""


def files(
    recipe: Recipe,
    layout: Layout,
    estimate: Expected | None,
    launcher: str = "torchrun",
    script: str | None = None,
    form: str | None = None,
) -> dict[str, str]:
    """Launch files of one layout by name, the launcher's first.

    script: path of the user's own training script in place of the one that is written; form: one of
    FORMATS, None for the framework's own. Raises InputError for an unknown launcher or format, a
    framework that takes no script, and a model that it cannot express.
    """
    check(launcher, form)
    instructions = training.left_to_the_script(recipe)
    if instructions and not script and form != "accelerate":  # whose script is always the user's
        raise InputError(
            "what is trained must be said by a training script of your own:"
            f" {instructions[0]}; name it with --script PATH"
        )
    unwritten = switches.left_out(_unwritten(recipe, layout, form))
    lossy = numerics(recipe, layout)
    expected = (
        *instructions,
        *unwritten,
        *lossy,
        *(expectation(estimate) if estimate is not None else ()),
    )
    name, write = LAUNCHERS[launcher]
    write_program = FRAMEWORKS[recipe.framework] if form is None else FORMATS[form]
    program = write_program(recipe, layout, expected, script)
    program = replace(
        program,
        gpu=recipe.hardware.gpu.name,
        environment=(*program.environment, *training.variables(recipe)),
        versions=(*recipe.versions.packages(), *program.versions),
    )
    return {
        name: write(program),
        **dict(STARTED_FILES[launcher](program) if launcher in STARTED_FILES else ()),
        **dict(program.files),
    }


def _unwritten(recipe: Recipe, layout: Layout, form: str | None) -> Switches:
    """What a plan was measured with and its files cannot hold: switches of another framework, and
    those that the format has no words for.
    """
    own = switches.of(recipe.framework, recipe.switches)
    others = {name: value for name, value in recipe.switches.items() if name not in own}
    if form == "accelerate":
        return others | wordless(recipe, layout, "accelerate")
    if recipe.framework != "torch":
        return others
    older = recipe.versions.torchtitan == TORCHTITANS[0]
    return others | wordless(recipe, layout, "toml" if older else "titan")


def check(launcher: str, form: str | None) -> None:
    """Raises InputError for unknown names, and for a launcher that cannot start the format."""
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    if form is not None and form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if form == "accelerate" and launcher == "deepspeed":
        raise InputError(
            "accelerate starts the processes of a node itself, but got --launcher deepspeed; try"
            " torchrun or slurm"
        )
