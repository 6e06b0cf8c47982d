"""Every JSON is read by the real DeepSpeedConfig: accepted, no key ignored, understood as it was
meant.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.emit import deepspeed_config
from planner.layout import OFFLOADS, Layout
from planner.specs.deepspeed import with_autotp
from planner.specs.recipe import Recipe
from tests import documents
from tests.judges import deepspeed_oracle, deepspeed_sweep


def wrong(recipe: Recipe, layout: Layout, said: dict[str, Any]) -> list[str]:
    """Where DeepSpeed's reading differs from the layout; the product of AutoTP's batch counts the
    ranks of a layer apart.
    """
    if not said["accepted"]:
        return [said["message"]]
    what, _, device = OFFLOADS[layout.offload].partition("-")
    meant = {
        "ignored": [],
        "batch": layout.gbs * (layout.tp if with_autotp(recipe, layout) else 1),
        "micro": layout.mbs,
        "steps": layout.m,
        "zero": layout.zero,
        "hpz": layout.hpz,
        "autotp": layout.tp if with_autotp(recipe, layout) else 0,
        "optimizer": device or "none",
        "weights": device if what == "params" else "none",
        "bf16": recipe.precision == "bf16",
        "fp16": recipe.precision == "fp16",
    }
    written = deepspeed_config.zero(recipe, layout)
    read = {**said["zero_config"], **(said["zero_config"]["offload_optimizer"] or {})}
    meant |= {name: value for name, value in written.items() if not isinstance(value, dict)}
    meant |= written.get("offload_optimizer", {})
    said = {**read, **said}
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def check(seed: int, questions: int, each: int) -> int:
    drawn = list(deepspeed_sweep.cases(seed, questions, each))
    said = deepspeed_oracle.verdicts(case for *_, case in drawn)
    assert len(said) == len(drawn)
    faults = [
        (case.name, found)
        for (recipe, layout, case), one in zip(drawn, said, strict=True)
        if (found := wrong(recipe, layout, one))
    ]
    assert not faults, f"{len(faults)} of {len(drawn)}, first: {faults[0]}"
    kinds = {
        (
            layout.zero,
            layout.offload > 0,
            layout.hpz > 1,
            layout.tp > 1,
            layout.pp > 1,
            layout.cp > 1,
        )
        for _, layout, _ in drawn
    }
    assert {kind[0] for kind in kinds} == {0, 1, 2, 3} and all(
        any(kind[at] for kind in kinds) for at in range(1, 6)
    )
    return len(drawn)


def test_sweep() -> None:
    assert check(seed=5, questions=80, each=4) >= 200


CHANGES: dict[str, dict[str, Any]] = {
    "pipeline_num_chunks": {"pipeline_num_chunks": 2},
    "pipeline": {"pipeline": {"pipeline_num_chunks": 2}},
}


@pytest.mark.parametrize("ignored", CHANGES)
def test_a_key_that_nobody_reads_is_found(ignored: str) -> None:
    """The oracle itself: DeepSpeed accepts these without a word."""
    recipe = documents.recipe("llama3-8b", 8, stack="deepspeed", framework="deepspeed")
    case = deepspeed_sweep.case("", recipe, documents.layout(recipe, sp=0))
    case.config |= CHANGES[ignored]
    [said] = deepspeed_oracle.verdicts([case])
    assert said["accepted"] and any("pipeline" in key for key in said["ignored"])


def test_words_that_deepspeed_refuses_are_found() -> None:
    recipe = documents.recipe("llama3-8b", 8, stack="deepspeed", framework="deepspeed")
    case = deepspeed_sweep.case("", recipe, documents.layout(recipe, sp=0, zero=3))
    case.config["zero_optimization"]["stage3_prefetch_bucket"] = 1
    [said] = deepspeed_oracle.verdicts([case])
    assert not said["accepted"]


def test_the_batch_must_be_its_product() -> None:
    recipe = documents.recipe("llama3-8b", 8, stack="deepspeed", framework="deepspeed")
    case = deepspeed_sweep.case("", recipe, documents.layout(recipe, sp=0))
    case.config["train_batch_size"] += 1
    [said] = deepspeed_oracle.verdicts([case])
    assert "train_batch_size" in said["message"] or "batch" in said["message"]


def of(**knobs: Any) -> dict[str, Any]:
    recipe = documents.recipe("llama3-8b", 16, stack="deepspeed", framework="deepspeed")
    return deepspeed_config.config(recipe, documents.layout(recipe, **{"sp": 0, **knobs}))


def test_pipelines_add_in_32_bits_and_break_nothing_down() -> None:
    """PipelineEngine: BF16_Optimizer under zero 1; without sharding the word is an unsupported mix
    (runtime/engine.py).
    """
    assert of(pp=2, zero=1)["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "data_types" not in of(pp=2, zero=0)
    assert "data_types" not in of(zero=1)
    assert of(pp=2, zero=1)["wall_clock_breakdown"] is False
    assert of(pp=2, zero=1)["zero_optimization"]["overlap_comm"] is False


def test_states_go_where_the_layout_says() -> None:
    place = {"device": "nvme", "pin_memory": True, "nvme_path": "/local_nvme"}
    assert of(zero=3, offload=4)["zero_optimization"]["offload_param"] == place
    assert "offload_param" not in of(zero=3, offload=2)["zero_optimization"]
    assert of(zero=3, hpz=8)["zero_optimization"]["zero_hpz_partition_size"] == 8


def test_autotp_leaves_the_batch_to_its_parts() -> None:
    """Its configuration is read before the groups exist, so ranks of one layer would count as
    data-parallel ones.
    """
    assert "train_batch_size" not in of(tp=2, zero=2)
    assert of(tp=2, zero=2)["tensor_parallel"]["autotp_size"] == 2
    assert of(cp=2, zero=2)["sequence_parallel_size"] == 2


def test_megatron_deepspeed_has_its_own_optimizer() -> None:
    assert "optimizer" not in of(tp=2, pp=2, zero=1) and "tensor_parallel" not in of(
        tp=2, pp=2, zero=1
    )


@pytest.mark.parametrize(("dp", "buffer"), [(4, 131_334_144), (8, None)])
def test_buffers_from_nvme_hold_the_largest_shard(dp: int, buffer: int | None) -> None:
    """128,256 x 4,096 of llama3-8b's embedding over dp; DeepSpeed asserts shard <= buffer_size, 1e8
    where nothing is said.
    """
    recipe = documents.recipe("llama3-8b", dp, stack="deepspeed", framework="deepspeed")
    layout = documents.layout(recipe, sp=0, zero=3, offload=OFFLOADS.index("params-nvme"))
    zero = deepspeed_config.zero(recipe, layout)
    assert (
        zero["offload_param"].get("buffer_size") == buffer
        and "buffer_size" not in zero["offload_optimizer"]
    )
    [said] = deepspeed_oracle.verdicts([deepspeed_sweep.case("", recipe, layout)])
    assert said["accepted"] and not said["ignored"]
