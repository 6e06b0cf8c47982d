"""`prove.py`: a script that runs one rank of a plan on one GPU, under the framework's own fake
process group, and prints one line of what it measured.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from itertools import chain
from typing import Any

from planner.emit import environment, megatron, torchtitan, training
from planner.emit.megatron_kinds import entry
from planner.errors import InputError
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS
from planner.specs.switches.switch import Value, setting
from planner.specs.switches.table import shown, under
from planner.specs.versions import version_of

NAME = "prove.py"
FAKE_GROUP = (0, 17)
"""Version of Megatron-core from which --fake-process-group is there. Source: [megatron-core]
training/arguments.py of 0.16.1 and 0.17.1.
"""
STEPS = 5
"""The first builds, compiles and makes the optimizer's states."""
STAND_INS: dict[str, dict[str, dict[Value, Value]]] = {
    "megatron": {
        "moe_dispatcher": {"deepep": "alltoall", "hybridep": "alltoall"},
        "tp_comm_overlap": {True: False},
    },
    "torch": {
        "moe_dispatcher": {"deepep": "alltoall", "hybridep": "alltoall"},
        "async_tensor_parallel": {True: False},
        "fsdp_symm_mem": {True: False},
    },
}
"""By framework values of switches that a fake process group cannot run, and what stands in: the
flex dispatcher is refused there ([megatron-core] training/arguments.py), and userbuffers open the
memory of GPUs that are not there (training/initialize.py), as do symmetric memory and the libraries
of torchtitan's dispatchers.
"""
_PLACE = "PLAN = {}\n"


def check(recipe: Recipe, layout: Layout) -> None:
    """Raises InputError for a plan that no fake process group runs."""
    if recipe.framework == "deepspeed":
        raise InputError(
            "--prove must have a framework with a fake process group, and DeepSpeed has none; try"
            " --framework megatron, or ppplan tune --runner deepspeed on the plan's own GPUs"
        )
    if recipe.framework == "torch":
        _check_torchtitan(recipe, layout)
    elif version_of("megatron", recipe.framework_version) < FAKE_GROUP:
        raise InputError(
            "--prove must have Megatron-core 0.17 or later, whose --fake-process-group it uses,"
            f" but the plan is for {recipe.framework_version}"
        )
    instructions = training.left_to_the_script(recipe)
    if instructions:
        raise InputError(
            f"--prove must have a plan that the framework's own program trains, but"
            f" {instructions[0]}"
        )


def _check_torchtitan(recipe: Recipe, layout: Layout) -> None:
    if recipe.versions.torchtitan == TORCHTITANS[0]:
        raise InputError(
            "--prove must have torchtitan 0.3, whose fake backend takes a rank, but the plan is for"
            f" {recipe.versions.torchtitan}; try --software torchtitan@0.3"
        )
    if layout.ep > 1:
        raise InputError(
            "--prove under torchtitan must have its experts on one rank, since the fake backend"
            f" sends no counts of tokens, but got ep={layout.ep}; try --framework megatron"
        )


def stand_ins(recipe: Recipe) -> dict[str, Value]:
    """Switches that the plan has and a fake process group does not, at the values that stand in."""
    out: dict[str, Value] = {}
    for name, values in STAND_INS.get(recipe.framework, {}).items():
        value = setting(recipe, name, "")
        if value in values:
            out[name] = values[value]
    return out


def digest(words: dict[str, Any]) -> str:
    """A short name of the question with its layout: the same for the same plan."""
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:12]


def text(recipe: Recipe, layout: Layout, stage: int, proof: dict[str, Any]) -> str:
    """The script. recipe, layout: the plan, with as many micro-batches as run; stage: the pipeline
    stage whose first rank it is; proof: what the line says beside what is measured.
    """
    instead = stand_ins(recipe)
    replaced = {
        name: (shown(setting(recipe, name, "")), shown(value)) for name, value in instead.items()
    }
    recipe = under(recipe, {**recipe.switches, **instead})
    starts = _torchtitan if recipe.framework == "torch" else _megatron
    plan = {
        "framework": recipe.framework,
        **starts(recipe, layout, stage * (layout.gpus // layout.pp)),
        "stand_ins": replaced,
        "proof": {**proof, "instead": instead},
    }
    template = (resources.files("planner.emit") / "scripts" / NAME).read_text()
    assert template.count(_PLACE) == 1
    words = json.dumps(plan, indent=1).replace("\\", "\\\\")
    return template.replace(_PLACE, f'PLAN = json.loads("""{words}""")\n')


def _megatron(recipe: Recipe, layout: Layout, rank: int) -> dict[str, Any]:
    """Variables and flags of a few steps; experts get as many tokens each, since what others would
    send is not there.
    """
    flags = [
        *megatron.flags(recipe, layout),
        ("--train-iters", str(STEPS)),  # stated twice: the last one counts
        ("--fake-process-group",),
    ]
    if recipe.model.moe:
        flags.append(("--moe-router-force-load-balancing",))
    variables = {
        **dict(environment.megatron(recipe, layout)),
        "RANK": str(rank),
        "WORLD_SIZE": str(layout.gpus),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    return {
        "environment": variables,
        "entry": entry(recipe),
        "flags": list(chain.from_iterable(flags)),
    }


def _torchtitan(recipe: Recipe, layout: Layout, rank: int) -> dict[str, Any]:
    """Variables, the plan's own file and flags of a few steps.

    Source: [torchtitan] distributed/utils.py init_distributed of 0.3.0.
    """
    program = torchtitan.program(recipe, layout, ())
    flags = [word for _, flags in program.groups for flag in flags for word in flag]
    flags += ["--training.steps", str(STEPS), "--comm.mode", "fake_backend"]
    if recipe.model.moe:
        flags.append("--debug.moe_force_load_balance")
    variables = {
        **dict(program.environment),
        "NGPU": str(layout.gpus),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
    }
    module = dict(program.files)[torchtitan.SCRIPT]
    return {"environment": variables, "flags": flags, "module": module}
