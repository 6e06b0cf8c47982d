"""Overrides are put on Megatron-Bridge 0.3.1's own recipes by its own code, then validated by it
with Megatron core 0.16.1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.emit import bridge, table
from planner.errors import InputError
from planner.layout import RECOMPUTE, Layout, module_names
from planner.plan_files import launch_texts
from planner.specs import library
from planner.specs.recipe import Recipe
from tests import documents, recorder
from tests.judges import judging, megatron_oracle, megatron_sweep, wheels
from tests.judges.tried import legal

JUDGE = str(Path(__file__).parents[1] / "judges" / "bridge_judge.py")
CORE = "0.16"
"""What Megatron-Bridge 0.3 runs on."""


def question(model: str = "llama3-70b", gpus: int = 64, **changes: Any) -> Recipe:
    return documents.recipe(
        model, gpus, **{"stack": "megatron-bridge", "framework_version": CORE, **changes}
    )


def sizes(recipe: Recipe) -> dict[str, Any]:
    """Of the network, in Megatron's words, as a recipe would find them in the model's
    config.json.
    """
    model = recipe.model
    out: dict[str, Any] = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_size,
        "mla": model.mla is not None,
        "num_attention_heads": model.num_heads,
        "num_query_groups": model.num_kv_heads,
        "vocab_size": model.vocab_size,
    }
    if model.moe:
        out |= {
            "num_moe_experts": model.moe.num_experts,
            "moe_router_topk": model.moe.experts_per_token,
            "add_bias_linear": False,
            "moe_ffn_hidden_size": model.moe.expert_ffn_size,
            "moe_grouped_gemm": True,
        }
        if model.moe.shared_ffn_size:
            out["moe_shared_expert_intermediate_size"] = model.moe.shared_ffn_size
    return out


def words(recipe: Recipe) -> list[str]:
    """What the launch file calls the script with; `test_launched` holds it against the file."""
    return [
        "--recipe",
        bridge.recipe_name(recipe.model),
        "--precision",
        bridge.PRECISIONS[recipe.precision],
        "--overrides",
        bridge.FILE,
        "train.train_iters=7",
    ]


def case(recipe: Recipe, one: Layout, **changed: str) -> dict[str, Any]:
    files = dict(bridge.program(recipe, one, ()).files) | changed
    card = recipe.hardware.gpu
    return {
        "files": files,
        "words": words(recipe),
        "sizes": sizes(recipe),
        "gpus": recipe.gpus,
        "arch": int(card.compute_capability),
        "gpu": f"{card.vendor} {card.name.partition(' ')[0]}",
    }


def verdicts(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    env = wheels.environment("megatron-bridge", "0.3.1")
    env["PYTHONPATH"] += os.pathsep + str(megatron_oracle.wheel("0.16.1"))
    return judging.verdicts([sys.executable, JUDGE], env, cases, "verdict ")


def wrong(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """Where Megatron-Bridge's configuration, ready to run, differs from the plan."""
    if not said["accepted"]:
        return [said["message"]]
    distributed, wide = one.zero >= 1, recipe.software.states.grad_reduce_bytes >= 4
    meant: dict[str, Any] = {
        "unknown": [],
        "dp": one.dp,
        "m": one.m * one.mbs,
        "mbs": one.mbs,
        "gbs": one.gbs,
        "train_iters": 7,
        "fsdp": one.zero >= 2,
        "strategy": {2: "optim_grads", 3: "optim_grads_params"}.get(one.zero, "no_shard"),
        "distributed": [distributed, distributed],
        "reduce": wide,
        "overlap": [True, distributed],
        "states": "torch.float32",
    }
    kind = RECOMPUTE[one.recompute]
    model: dict[str, Any] = {
        "tensor_model_parallel_size": one.tp,
        "pipeline_model_parallel_size": one.pp,
        "context_parallel_size": one.cp,
        "virtual_pipeline_model_parallel_size": one.v if one.v > 1 else None,
        "sequence_parallel": bool(one.sp),
        "expert_model_parallel_size": one.ep,
        "expert_tensor_parallel_size": one.etp,
        "seq_length": recipe.seq_length,
        "recompute_granularity": None if kind == "none" else kind,
        "bf16": recipe.precision != "fp16",
        "fp8_recipe": (
            {"fp8-delayed": "delayed", "fp8-blockwise": "blockwise", "mxfp8": "mxfp8"}.get(
                recipe.precision, "tensorwise"
            )
        ),
        "account_for_embedding_in_pipeline_split": bool(one.account_for_embedding),
    }
    if recipe.model.moe:
        model["moe_token_dispatcher_type"] = (
            "flex" if one.ep * one.etp > 1 else "alltoall"
        )  # the stack's is HybridEP
    if kind == "selective":
        model["recompute_modules"] = module_names(one.recompute_modules) or ["core_attn"]
    elif kind == "full":
        model["recompute_num_layers"] = one.recompute_layers or 1
    found = [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]
    return found + [
        f"model.{name}: {said['model'][name]}, not {value}"
        for name, value in model.items()
        if said["model"][name] != value
    ]


def drawn(seed: int, count: int) -> Iterator[tuple[Recipe, Layout]]:
    """Legal layouts of core 0.16, of recipes and clusters at random."""
    rng, left = np.random.default_rng(seed), count
    while left:
        cluster = str(rng.choice(["h100-sxm", "b200-sxm", "a100-80g-sxm"]))
        kinds = (
            ["bf16", "bf16"]
            if cluster.startswith("a100")
            else ["bf16", "fp8-delayed", "fp8-tensorwise", "fp8-blockwise"]
        )
        recipe = question(
            str(rng.choice(list(bridge.RECIPES))),
            int(rng.choice([8, 64, 256])),
            hardware=cluster,
            seq_length=4096,
            precision=str(rng.choice(kinds)),
            global_batch_size=int(rng.choice([256, 480, 1024])),
        )
        for one in legal(rng, recipe, megatron_sweep.draw(rng, recipe), 1):
            yield recipe, one
            left -= 1


def check(seed: int, count: int) -> int:
    some = list(drawn(seed, count))
    said = verdicts([case(recipe, one) for recipe, one in some])
    found = [
        (recipe.model.name, recipe.precision, one.named(), wrong(recipe, one, reply))
        for (recipe, one), reply in zip(some, said, strict=True)
    ]
    assert not (faults := [one for one in found if one[3]]), (
        f"{len(faults)} of {len(some)}, first: {faults[0]}"
    )
    return len(some)


def test_sweep() -> None:
    assert check(seed=4, count=12) == 12


def test_a_changed_word_is_found() -> None:
    """The oracle itself: a word that no configuration has, a batch that no rank can divide."""
    recipe = question()
    one = documents.layout(recipe, tp=4, pp=2)
    text = dict(bridge.program(recipe, one, ()).files)[bridge.FILE]
    changes = [
        {bridge.FILE: text.replace("tensor_model_parallel_size", "tensor_parallel_size")},
        {bridge.FILE: text.replace("context_parallel_size: 1", "context_parallel_size: 3")},
    ]
    said = verdicts(
        [case(recipe, one) | {"files": case(recipe, one)["files"] | change} for change in changes]
    )
    assert said[0]["unknown"] == ["model.tensor_parallel_size"]
    assert not said[1]["accepted"] and "divisible" in said[1]["message"]


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a model without a recipe": ({"model": "falcon-40b"}, {}, "llama3-8b"),
    "32 bits": ({"precision": "fp32"}, {}, "bf16"),
    "torch's FSDP2": ({"stack": "megatron-fsdp2"}, {"zero": 3}, "stack megatron-bridge"),
    "DeepSpeed's plans": ({"stack": "deepspeed"}, {}, "--framework megatron"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_a_way_out(what: str) -> None:
    changes, knobs, way_out = REFUSED[what]
    recipe = question(**changes)
    with pytest.raises(InputError, match=way_out):
        launch_texts(recipe, documents.layout(recipe, **knobs), "torchrun", None, form="bridge")


def test_another_name_of_the_same_sizes_is_the_same_model() -> None:
    renamed = library.model("llama3-8b").model_copy(update={"name": "mine", "rope_theta": 1e6})
    assert bridge.recipe_name(renamed) == "llama3_8b_pretrain_config"


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launched(launcher: str, tmp_path: Path) -> None:
    recipe = question()
    written = table.files(
        recipe, documents.layout(recipe, tp=8, pp=2), None, launcher, form="bridge"
    )
    call = recorder.call(
        tmp_path,
        written[table.LAUNCHERS[launcher][0]],
        "model.seq_length=4096",
        TRAIN_ITERS="7",
        FILES="/plan",
    )
    assert call.entry == f"/plan/{bridge.SCRIPT}" and call.world_size == 64
    assert [word.removeprefix("/plan/") for word in call.flags] == [
        *words(recipe),
        "model.seq_length=4096",
    ]
    assert set(written) == {table.LAUNCHERS[launcher][0], bridge.FILE, bridge.SCRIPT}
