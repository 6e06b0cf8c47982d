"""Layers of several kinds as Megatron-LM's flags, judged by its own parser, layers and models."""

from __future__ import annotations

from typing import Any

import pytest

from planner.rules.table import breaches
from planner.specs import library
from planner.specs.model import ModelSpec
from tests import documents
from tests.emit.test_hybrids import FEW, hybrid
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import NEWEST, verdicts

PLANS: list[tuple[ModelSpec, dict[str, Any]]] = [
    (hybrid("MEM*EMG-GE", "*E", 2, activation="silu", gated_mlp=True), {"tp": 2, "pp": 2, "ep": 2}),
    (hybrid("M*-E" * 3, "M-", 1, mtp_repeated=True), {"tp": 4, "pp": 2, "v": 3, "ep": 2}),
    (hybrid("MM*-MM"), {"pp": 2, "stage_layout": "Et*4|ttL"}),
]


def shorter(name: str, **changes: Any) -> ModelSpec:
    """A preset with few layers and experts."""
    model = library.model(name)
    assert model.moe
    return model.model_copy(update={"moe": model.moe.model_copy(update=FEW), **changes})


DELTA = shorter("qwen3-next-80b-a3b", num_layers=8, pattern="(delta*3 attention)*2")
SPARSE = shorter("glm5", num_layers=6)
SHARED = shorter(
    "glm5.2",
    num_layers=8,
    pattern="attention-dense*3 shared-index-experts*3 attention-experts shared-index-experts",
)
STAGES = {"pp": 2, "ep": 4, "stage_layout": "Et*6|ttmL"}


@pytest.mark.parametrize(
    ("version", "plans"),
    [
        (NEWEST, [*PLANS, (DELTA, {"tp": 2, "pp": 2, "ep": 4}), (SPARSE, {"pp": 2, "ep": 4})]),
        (NEWEST, [(SHARED, STAGES)]),
        ("0.17.1", [*PLANS, (DELTA, {"tp": 2, "pp": 2, "ep": 4})]),
    ],
)
def test_megatron_builds_the_layers_and_parameters_of_each_stage(
    version: str, plans: list[tuple[ModelSpec, dict[str, Any]]]
) -> None:
    """Its HybridModel, MambaModel and GPTModel with their own layers on the meta device."""
    cases, expected = [], []
    for model, knobs in plans:
        short = ".".join(version.split(".")[:2])
        recipe = documents.recipe(model, 16, framework_version=short)
        layout = documents.layout(recipe, **knobs)
        assert not breaches(recipe, layout)
        cases.append(megatron_sweep.command(model.pattern, recipe, layout, build=True))
        expected.append(megatron_sweep.expected_stages(recipe, layout))
    answers = verdicts(cases, version)
    assert [answer["message"] for answer in answers] == [""] * len(cases)
    assert [answer["stages"] for answer in answers] == expected
