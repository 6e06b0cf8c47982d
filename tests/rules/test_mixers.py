"""Rules of layers that are no attention with an MLP, before Megatron-LM's own classes."""

from __future__ import annotations

from typing import Any

import pytest

from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches
from tests import documents
from tests.emit.test_hybrids import FEW, KINDS, hybrid
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import verdicts


def few(name: str, **changes: Any) -> ModelSpec:
    model = library.model(name)
    assert model.moe
    return model.model_copy(update={"moe": model.moe.model_copy(update=FEW), **changes})


MAMBA = hybrid("M*M-" * 2)  # 16 heads in 4 groups
ODD_WIDTH = hybrid(
    "M*M-",
    kinds=[
        {**KINDS["M"], "mixer": {**KINDS["M"]["mixer"], "num_heads": 20}},
        KINDS["*"],
        KINDS["-"],
    ],  # type: ignore[dict-item]
)
DELTA = few("qwen3-next-80b-a3b", num_layers=4, pattern="delta*3 attention")  # 16 key heads
SPARSE = few("glm5", num_layers=4, mtp_layers=0)
SHARED = few(
    "glm5.2",
    num_layers=8,
    mtp_layers=0,
    mtp_pattern="",
    pattern="attention-dense*3 shared-index-experts*3 attention-experts shared-index-experts",
)

CASES: dict[str, tuple[ModelSpec, dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "Mamba heads split over tp and cp": (
        MAMBA,
        {},
        {"tp": 4, "cp": 4},
        {"tp": 4, "cp": 8},
        "nheads must be evenly divisible by tp_size * cp_size",
    ),
    "Mamba groups split over tp and cp": (
        MAMBA,
        {},
        {"tp": 4},
        {"tp": 8},
        "ngroups must be evenly divisible by tp_size",
    ),
    "delta nets split over tp and cp": (
        DELTA,
        {},
        {"tp": 8, "cp": 2},
        {"tp": 8, "cp": 4},
        "linear_num_key_heads",
    ),
    "sparse attention gathers under cp": (
        SPARSE,
        {},
        {"cp": 1},
        {"cp": 2},
        "cp_comm_type=allgather only",
    ),
    "sparse attention runs under cp since 0.19": (
        SPARSE,
        {"framework_version": "0.18"},
        {"cp": 1},
        {"cp": 2},
        "not supported by DSAttention",
    ),
    "delta nets run under cp since 0.18": (
        DELTA,
        {"framework_version": "0.17"},
        {"cp": 1},
        {"cp": 2},
        "",
    ),
    "sparse attention needs sequence parallelism": (
        SPARSE,
        {},
        {"tp": 2},
        {"tp": 2, "sp": 0},
        "",
    ),
    "layers that share keys lie in one stage": (
        SHARED,
        {},
        {"pp": 2, "stage_layout": "Et*6|ttL"},
        {"pp": 2},
        "DSA index-share pipeline split is invalid",
    ),
    "hybrids have even stages before 0.17": (
        MAMBA,
        {"framework_version": "0.16"},
        {"pp": 4},
        {"pp": 4, "v": 2},
        "",
    ),
    "hybrids predict on the last stage": (
        hybrid("M*M-" * 2, "*-", 1),
        {},
        {"pp": 2, "stage_layout": "Et*5|t*3mL"},
        {"pp": 4, "stage_layout": "Et*5|t*2|tm|L"},
        "",
    ),
}
"""By rule the model, the recipe, a layout that holds and one that breaks, and what Megatron-LM's
classes say of the latter; empty where none catches it.
"""


def plan(model: ModelSpec, changes: dict[str, Any], knobs: dict[str, Any]) -> tuple[Recipe, Layout]:
    recipe = documents.recipe(model, 32, **changes)
    return recipe, documents.layout(recipe, **knobs)


@pytest.mark.parametrize("rule", CASES)
def test_rule_holds_and_breaks(rule: str) -> None:
    model, changes, holding, breaking, _ = CASES[rule]
    assert not breaches(*plan(model, changes, holding))
    assert rule in [found.rule for found in breaches(*plan(model, changes, breaking))]


@pytest.mark.parametrize("version", ["0.18", "0.19"])
def test_megatron_refuses_what_the_rule_refuses(version: str) -> None:
    cases, says = [], []
    for rule, (model, changes, holding, breaking, message) in CASES.items():
        if message and changes.get("framework_version", "0.19") == version:
            for side, knobs in (("holds", holding), ("breaks", breaking)):
                question, one = plan(model, changes, knobs)
                name = f"{rule}: {side}"
                cases.append(megatron_sweep.command(name, question, one, build=True))
                says.append(message if side == "breaks" else "")
    answers = verdicts(cases, {"0.18": "0.18.0", "0.19": "0.19.2"}[version])
    for answer, message in zip(answers, says, strict=True):
        assert answer["accepted"] == (not message), answer
        assert message in answer["message"]


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        # layouts of Megatron-Bridge's recipes for GLM-5.2 (recipes/glm/h100/glm5.py)
        (
            {
                "pp": 13,
                "stage_layout": "Etttttt|tttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt"
                "|tttt|tttt|tttt|tttt|ttttmL",
            },
            True,
        ),
        ({"pp": 2}, False),  # the second half begins at layer 39, which takes 38's choice
        ({"pp": 19, "first_layers": 6}, True),
        ({"pp": 19, "last_layers": 6}, False),
        ({}, True),
    ],
)
def test_a_choice_of_keys_crosses_no_stage(words: dict[str, Any], holds: bool) -> None:
    """Whole models, even stages and stated ones."""
    layout = Layout(dp=8, **words)
    recipe = documents.recipe("glm5.2", layout.gpus, global_batch_size=layout.gbs)
    broken = [breach.rule for breach in breaches(recipe, layout)]
    assert ("layers that share keys lie in one stage" in broken) == (not holds)


def test_sparse_attention_takes_gathered_keys() -> None:
    gathers = with_switches(library.stack("megatron"), {"cp_comm_type": "all_gather"})
    recipe = documents.recipe(SPARSE, 32, software=gathers)
    layout = documents.layout(recipe, cp=2)
    assert not breaches(recipe, layout)
    [answer] = verdicts([megatron_sweep.command("gathers", recipe, layout)])
    assert answer["accepted"], answer["message"]


def test_widths_align_for_eight_bits() -> None:
    """Its first product has 2 x 20 x 64 + 2 x 4 x 64 + 20 = 3092 outputs."""
    recipe = documents.recipe(ODD_WIDTH, 32, precision="fp8-tensorwise")
    layout = documents.layout(recipe)
    assert "widths of mixers align" in [found.rule for found in breaches(recipe, layout)]
    [answer] = verdicts([megatron_sweep.command("8 bits", recipe, layout, build=True)])
    assert "must be a multiple of 16" in answer["message"]


def test_an_exchange_beside_compute_is_of_no_hybrid() -> None:
    """HybridModel has no schedule plan: [megatron-core] core/models/hybrid/hybrid_model.py."""
    overlapped = with_switches(
        library.stack("megatron"), {"overlap_moe_expert_parallel_comm": True}
    )
    recipe = documents.recipe(hybrid("MEM*" * 2), 32, software=overlapped)
    found = breaches(recipe, documents.layout(recipe, ep=2))
    assert "overlapped exchange is of plain models" in [one.rule for one in found]
