"""Rules of DeepSpeed: a layout that holds and one that breaks each, by the version that binds
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE
from planner.rules import deepspeed
from planner.rules.table import breaches, mask, rules_for
from planner.specs import library
from planner.specs.recipe import Recipe
from tests import documents
from tests.judges import deepspeed_sweep

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]
CPU, WEIGHTS, NVME = (
    OFFLOAD_CODE["optimizer-cpu"],
    OFFLOAD_CODE["params-cpu"],
    OFFLOAD_CODE["optimizer-nvme"],
)
DRIVES = library.hardware("h100-sxm", ("node.nvme_gbytes_per_s=12",))

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # rule: (of the question, a layout that holds, a layout that breaks)
    "offload needs shards": ({}, {"zero": 1, "offload": CPU}, {"zero": 0, "offload": CPU}),
    "nodes have NVMe": ({}, {"zero": 3, "offload": CPU}, {"zero": 3, "offload": NVME}),
    "hpZ needs zero 3": ({}, {"zero": 3, "hpz": 8}, {"zero": 2, "hpz": 8}),
    "hpZ groups split the GPUs": ({}, {"zero": 3, "hpz": 8}, {"zero": 3, "hpz": 5}),
    "key-value heads split over tp": (
        {},
        {"tp": 8},
        {"tp": 16},
    ),  # llama3-70b: 64 heads, 8 of keys and values
    "Ulysses stands alone": ({}, {"cp": 2}, {"cp": 2, "tp": 2}),
    "heads split over cp": ({"seq_length": 8190, "gpus": 96}, {"cp": 2}, {"cp": 3}),
    "sequence splits over Ulysses ranks": ({"seq_length": 8190}, {"cp": 2}, {"cp": 4}),
    "sequence parallelism of Megatron-DeepSpeed": (
        {},
        {"tp": 2, "pp": 2, "zero": 1, "sp": 1},
        {"tp": 2, "sp": 1},
    ),
    "no virtual stages": ({}, {"pp": 4, "zero": 1}, {"pp": 4, "zero": 1, "v": 2}),
    "DeepSpeed runs the schedule": (
        {},
        {"pp": 4, "zero": 1, "schedule": SCHEDULE_CODE["zb-h1"]},
        {"pp": 4, "zero": 1, "schedule": SCHEDULE_CODE["gpipe"]},
    ),
    "pipeline shards no gradients": ({}, {"pp": 2, "zero": 1}, {"pp": 2, "zero": 2}),
    "stages have equal layers": ({"gpus": 96}, {"pp": 4, "zero": 1}, {"pp": 3, "zero": 1}),
    "no other split of the layers": (
        {},
        {"pp": 4, "zero": 1},
        {"pp": 4, "zero": 1, "first_layers": 19},
    ),
    "recomputes whole layers": (
        {},
        {"recompute": FULL},
        {"recompute": SELECTIVE, "recompute_modules": 1},
    ),
    "recompute layers fit a stage": (
        {},
        {"pp": 4, "zero": 1, "recompute": FULL, "recompute_layers": 20},
        {"pp": 4, "zero": 1, "recompute": FULL, "recompute_layers": 21},
    ),
    "experts split over data-parallel ranks": (
        {"model": "mixtral-8x7b", "global_batch_size": 960, "gpus": 48},
        {"ep": 4, "tp": 4},
        {"ep": 8, "tp": 4},
    ),
    "split experts shard no weights before 0.19": (
        {"model": "mixtral-8x7b", "framework_version": "0.18"},
        {"ep": 8, "zero": 2},
        {"ep": 8, "zero": 3},
    ),
    "split experts under zero 3 stand alone": (
        {"model": "mixtral-8x7b"},
        {"ep": 8, "zero": 3},
        {"ep": 8, "zero": 3, "cp": 2},
    ),
    "DeepSpeed has the precision": ({"precision": "bf16"}, {}, {}),
    "attention runs in torch": ({"attention": "unfused"}, {}, {}),
    "GPU runs the precision": ({"hardware": "a100-80g-sxm"}, {}, {}),
    "Ulysses came with 0.17": ({"framework_version": "0.17"}, {"cp": 2}, {"cp": 2}),
    "AutoTP shards no weights before 0.19": (
        {"framework_version": "0.18"},
        {"tp": 2, "zero": 2},
        {"tp": 2, "zero": 3},
    ),
}
BREAKING: dict[str, dict[str, Any]] = {
    "DeepSpeed has the precision": {"precision": "fp8-delayed"},
    "attention runs in torch": {"attention": "fused"},
    "GPU runs the precision": {"hardware": "v100-32g-sxm2"},
    "Ulysses came with 0.17": {"framework_version": "0.16"},
}
"""Where it is the question that breaks the rule."""


def question(**changes: Any) -> Recipe:
    known = {"stack": "deepspeed", "framework": "deepspeed", "gpus": 64, **changes}
    return documents.recipe(known.pop("model", "llama3-70b"), known.pop("gpus"), **known)


def names(recipe: Recipe, **knobs: Any) -> set[str]:
    return {
        found.rule
        for found in breaches(recipe, documents.layout(recipe, **{"sp": 0, "zero": 1, **knobs}))
    }


@pytest.mark.parametrize("rule", CASES)
def test_rule_holds_and_breaks(rule: str) -> None:
    changes, holding, breaking = CASES[rule]
    assert rule not in names(question(**changes), **holding)
    assert rule in names(question(**{**changes, **BREAKING.get(rule, {})}), **breaking)


def test_every_rule_has_a_case() -> None:
    own = {
        rule.name
        for rule in (
            *deepspeed.ENGINE,
            *deepspeed.SEQUENCE,
            *deepspeed.PIPELINE,
            *deepspeed.EXPERTS,
        )
    }
    assert own == set(CASES)


def test_states_that_need_weights_in_shards() -> None:
    drives = question(hardware=DRIVES)
    assert names(drives, zero=3, offload=NVME) == set()
    assert names(drives, zero=2, offload=NVME) == {"offload needs shards"}
    assert names(drives, zero=2, offload=WEIGHTS) == {"offload needs shards"}
    assert names(drives, zero=3, offload=WEIGHTS) == set()


def test_optimizer_of_a_pipeline_may_go_to_the_host() -> None:
    """Tried with two processes: PipelineModule under zero 1 with offload_optimizer trains."""
    assert names(question(), pp=2, zero=1, offload=CPU) == set()


def test_sequence_needs_no_halves_of_shares() -> None:
    """Megatron's ring wants 2 cp to divide the sequence; Ulysses cp alone."""
    assert names(question(seq_length=8188), cp=4) == set()
    assert "sequence splits over cp" in {rule.name for rule in rules_for(documents.recipe())}


def test_key_value_heads_are_copied_where_ranks_outnumber_them() -> None:
    assert names(question(gpus=128), cp=16) == set()  # 64 heads, 8 key-value heads on 16 ranks


@pytest.mark.parametrize(
    "version, legal",
    [("0.16", True), ("0.17", True), ("0.18", False), ("0.19", True), ("main", True)],
)
def test_tensor_parallelism_with_sharded_weights(version: str, legal: bool) -> None:
    """Before 0.18 AutoTP takes no rules for an own model, so Megatron-DeepSpeed runs it, whose
    engine shards weights too.
    """
    assert (names(question(framework_version=version), tp=2, zero=3) == set()) == legal


def test_megatron_deepspeed_checkpoints_all_layers() -> None:
    found = breaches(
        question(),
        documents.layout(question(), tp=2, pp=2, zero=1, sp=0, recompute=FULL, recompute_layers=3),
    )
    assert [one.rule for one in found] == [
        "recompute layers fit a stage"
    ] and "Megatron-DeepSpeed" in found[0].message


def test_sentence_names_the_way_out() -> None:
    recipe = question()
    [found] = [
        one
        for one in breaches(recipe, documents.layout(recipe, pp=2, zero=3, sp=0))
        if "gradients" in one.rule
    ]
    assert (
        found.message
        == "a pipeline goes with zero 0 or 1, but got zero=3 with pp=2; try zero 1, or pp 1"
    )
    [found] = [
        one
        for one in breaches(recipe, documents.layout(recipe, pp=2, v=2, zero=1, sp=0))
        if one.rule == "no virtual stages"
    ]
    assert "no interleaving" in found.message


@pytest.mark.parametrize(
    "model, gpus, version",
    [("llama3-70b", 64, "0.19"), ("qwen3-0.6b", 48, "0.16"), ("llama3-405b", 512, "0.18")],
)
def test_mask_is_no_breach(model: str, gpus: int, version: str) -> None:
    recipe = question(model=model, gpus=gpus, framework_version=version, seq_length=2048)
    batch = deepspeed_sweep.draw(np.random.default_rng(7), recipe, 600)
    ok, removed = mask(recipe, batch)
    assert [not breaches(recipe, batch[row]) for row in range(600)] == ok.tolist()
    assert ok.sum() == 600 - sum(removed.values())


def test_offload_beyond_the_optimizer_and_hpz_are_not_megatrons() -> None:
    recipe = documents.recipe()
    for knobs in ({"offload": WEIGHTS}, {"hpz": 8}):
        found = breaches(recipe, replace(documents.layout(recipe, tp=8), **knobs))
        assert {one.rule for one in found} == {"Megatron offloads the optimizer alone"}


def test_exchanged_heads_are_megatrons() -> None:
    recipe = documents.recipe(framework="deepspeed", framework_version="0.19", stack="deepspeed")
    found = breaches(recipe, documents.layout(recipe, tp=8, sp=0, cp_a2a=2))
    assert {one.rule for one in found} == {"cp_a2a is Megatron's"}
