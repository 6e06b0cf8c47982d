"""Random legal layouts of torchtitan's own models, and where its reading of their files differs
from what was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from planner.emit import torchtitan
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.software_versions import SoftwareVersions
from planner.specs.switches.switch import Value
from planner.specs.switches.table import settings_of, with_switches
from tests import documents
from tests.judges.torchtitan_oracle import NEWEST, Case
from tests.judges.tried import Tried, Wanted, around, together

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]
OPS = module_mask(["ops"])
DISPATCHERS = {
    "alltoall": "AllToAllTokenDispatcher",
    "deepep": "DeepEPTokenDispatcher",
    "hybridep": "HybridEPTokenDispatcher",
}
"""By switch the class that torchtitan 0.3 builds."""
COPIES = "data_parallel_replicate_degree"
CALL = ["--module", "torchtitan_plan", "--config", "plan", "--training.steps", "7"]
NEEDS = {"fp8-rowwise": 8.9, "mxfp8": 10.0, "nvfp4": 10.0}
"""Compute capability that torchtitan's converters ask for."""
DRAWN = 3_000
"""Layouts drawn for one question; the rules leave some of them."""


def wrong(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """Where torchtitan's reading differs from the layout; what both versions have."""
    if not said["accepted"]:
        return [said["message"]]
    set_to = settings_of(recipe.software)
    copies = set_to[COPIES] if one.dp * one.cp > 1 else 1
    graphed = set_to["cuda_graphs"] and one.zero == 3
    meant: dict[str, Any] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": one.dp // int(copies),
        "tensor_parallel_degree": one.tp,
        "context_parallel_degree": one.cp,
        "pipeline_parallel_degree": one.pp,
        "expert_parallel_degree": one.ep,
        "global_batch_size": one.gbs,
        "seq_len": recipe.seq_length,
        "fsdp_reshard_after_forward": (
            "default" if graphed else "always" if one.zero == 3 else "never"
        ),
        "compile": set_to["compile"] != "off",
        "components": {"model": ["model"], "loss": ["loss"]}.get(
            str(set_to["compile"]), ["model", "loss"]
        ),
        "async": set_to["async_tensor_parallel"] and one.sp == 1,
        "implementation": str(set_to["optimizer_implementation"]).replace("for_loop", "for-loop"),
        "dtype": (
            "bfloat16"
            if set_to["training_dtype"] == "bf16" and recipe.precision != "fp32"
            else "float32"
        ),
        "flavor": list(torchtitan.flavor(recipe.model)),
        "mixed_precision_param": "float32" if recipe.precision == "fp32" else "bfloat16",
    }
    if one.pp > 1:
        meant |= {"m": [one.m], "pipeline_parallel_microbatch_size": one.mbs}
    else:
        meant |= {"local_batch_size": one.mbs}
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def wrong_in_newest(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """The same, and what 0.3 alone has: stages as they are cut, partial recomputation, sequence
    parallelism.
    """
    found = wrong(recipe, one, said)
    if found:
        return found
    set_to = settings_of(recipe.software)
    library = set_to["moe_dispatcher"] if one.ep > 1 else "alltoall"
    policy = {0: "none", SELECTIVE: "SelectiveAC.Config", FULL: "FullAC.Config"}[one.recompute]
    if one.recompute_layers:
        policy = "FirstLayers.Config"
    meant: dict[str, Any] = {
        "policy": policy,
        "layers": one.recompute_layers if one.recompute == FULL else 0,
        "enable_sequence_parallel": bool(one.sp),
        "steps": 7,
        "disable_cuda_graphs": not set_to["cuda_graphs"],
        "chunks": 8 if set_to["chunked_loss"] else 0,
        "dispatchers": [DISPATCHERS[library]] if recipe.model.moe else [],
        "enable_fsdp_symm_mem": set_to["fsdp_symm_mem"] and one.dp * one.cp > 1,
    }
    if one.pp > 1:
        of_stage = (recipe.model.num_layers + one.account_for_embedding + one.account_for_loss) // (
            one.pp * one.v
        )
        stages = [of_stage] * (one.pp * one.v)
        stages[0] -= one.account_for_embedding
        stages[-1] -= one.account_for_loss
        meant["stages"] = stages
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def wrong_in_older(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """The same, and 0.2's converters."""
    return wrong(recipe, one, said) or unquantized(recipe, said)


def unquantized(recipe: Recipe, said: dict[str, Any]) -> list[str]:
    """0.2's converters by the names that it registers them under."""
    meant = {"fp8-rowwise": ["quantize.linear.float8"], "mxfp8": ["quantize.linear.mx"]}.get(
        recipe.precision, []
    )
    return [] if said["converters"] == meant else [f"converters: {said['converters']}, not {meant}"]


def question(
    rng: np.random.Generator,
    settings: dict[str, Value],
    wanted: Wanted | None = None,
    versions: SoftwareVersions | None = None,
) -> Recipe:
    """One of torchtitan's models, machine, sequence length and precision at random."""
    hardware = library.hardware(str(rng.choice(library.clusters())))
    capability = hardware.gpu.compute_capability
    wide = ["bf16", "bf16", "fp32"] if "bf16" in hardware.gpu.peak_tflops else ["fp32"]
    narrow = [name for name, least in NEEDS.items() if capability >= least]
    return documents.recipe(
        str(rng.choice(list(torchtitan.MODELS))),
        int(rng.choice([8, 64, 128, 512])),
        hardware=hardware,
        software=with_switches(library.stack("torch"), together("torch", settings, wanted)),
        framework_version="2.13",
        versions=versions or SoftwareVersions(),
        seq_length=int(rng.choice([2048, 4096])),
        precision=str(rng.choice([*wide, *narrow])),
    )


def draw(rng: np.random.Generator, recipe: Recipe, count: int = DRAWN) -> Layout:
    """Layouts whose GPUs and batch are right where that is possible; much else about them may be
    illegal.
    """

    def pick(*values: int) -> np.ndarray:
        return rng.choice(np.array(values), count)

    tp, pp, cp, mbs = pick(1, 2, 4, 8), pick(1, 1, 2, 3, 4), pick(1, 1, 2), pick(1, 2)
    names = [name for name in torchtitan.NAMES if name in recipe.software.schedules]
    schedule = pick(*(SCHEDULE_CODE[name] for name in names))
    single = np.isin(schedule, [SCHEDULE_CODE[name] for name in torchtitan.SINGLE])
    vs = np.isin(schedule, [SCHEDULE_CODE[name] for name in torchtitan.V_SHAPED])
    dp = np.maximum(recipe.gpus // (tp * pp * cp), 1)
    recompute = pick(0, SELECTIVE, FULL)
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        mbs=mbs,
        m=np.maximum(recipe.global_batch_size // (dp * mbs), 1),
        v=np.where(single | (pp == 1), 1, np.where(vs, 2, pick(2, 3, 4))),
        zero=pick(2, 3),
        sp=np.where(tp > 1, pick(0, 1), 0),
        ep=pick(1, 2, 8) if recipe.model.moe else 1,
        recompute=recompute,
        schedule=np.where(pp > 1, schedule, SCHEDULE_CODE["1f1b"]),
        recompute_layers=np.where(recompute == FULL, pick(0, 1, 2), 0),
        recompute_modules=np.where(recompute == SELECTIVE, OPS, 0),
        account_for_embedding=np.where(pp > 1, pick(0, 1), 0),
        account_for_loss=np.where(pp > 1, pick(0, 1), 0),
    )


def plans(
    seed: int, questions: int, each: int, version: str = NEWEST, tried: Tried | None = None
) -> Iterator[tuple[Recipe, Layout, dict[str, str]]]:
    """Questions at random, each around the value of a switch that was tried least; of each a few
    layouts that the rules let through and torchtitan has words for, with their files.
    """
    short = version.rpartition(".")[0]
    rng, tried = np.random.default_rng(seed), tried or Tried("torch", "2.13", short)
    ask = partial(question, versions=SoftwareVersions(torchtitan=short))
    for _ in range(questions):
        yield from around(rng, tried, each, ask, draw, _files)


def _files(recipe: Recipe, layout: Layout) -> dict[str, str] | None:
    try:
        return files(recipe, layout)
    except InputError:
        return None


def files(recipe: Recipe, layout: Layout) -> dict[str, str]:
    return dict(torchtitan.program(recipe, layout, ()).files)


def case(recipe: Recipe, one: Layout, **more: bool) -> Case:
    """The file that the recipe's torchtitan reads."""
    written = files(recipe, one)
    if torchtitan.SCRIPT in written:
        return Case(written[torchtitan.SCRIPT], CALL, recipe.gpus, capable=True, **more)
    return Case(written[torchtitan.TOML], [], recipe.gpus, **more)
