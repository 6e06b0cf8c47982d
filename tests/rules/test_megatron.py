"""Megatron-LM's rules that hang on the stack or the version: overlapped exchanges, narrow states,
FSDP2, what came later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.layout import RECOMPUTE_CODE, Layout, module_mask
from planner.rules.table import BY_FRAMEWORK, breaches
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches
from planner.specs.tuning import precise
from tests import documents

OVERLAP = "overlap_moe_expert_parallel_comm"
FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]


def names(question: Recipe, one: Layout) -> set[str]:
    return {found.rule for found in breaches(question, one)}


def overlapping(model: str = "mixtral-8x7b", **changes: Any) -> Recipe:
    """A question whose stack runs experts' exchange beside compute."""
    overlapped = with_switches(library.stack("megatron"), {OVERLAP: True})
    return documents.recipe(model, 64, stack=overlapped, **changes)


@pytest.mark.parametrize(
    "knobs, rules",
    [
        ({"ep": 8}, set()),
        ({"ep": 1, "pp": 4, "recompute": FULL}, set()),
        ({"ep": 8, "pp": 4, "v": 2}, set()),
        ({"ep": 8, "pp": 4}, {"overlapped exchange needs virtual stages"}),
        ({"ep": 8, "recompute": FULL}, {"overlapped exchange keeps its experts"}),
        (
            {"ep": 8, "recompute": SELECTIVE, "recompute_modules": module_mask(["moe"])},
            {"overlapped exchange keeps its experts"},
        ),
        ({"ep": 8, "recompute": SELECTIVE, "recompute_modules": module_mask(["moe_act"])}, set()),
    ],
)
def test_overlapped_exchange_of_experts(knobs: dict[str, Any], rules: set[str]) -> None:
    """TransformerConfig.__post_init__ of --overlap-moe-expert-parallel-comm; without an exchange it
    is not written.
    """
    question = overlapping()
    assert names(question, documents.layout(question, **knobs)) == rules


@pytest.mark.parametrize(
    "model, precision, rule",
    [
        ("mixtral-8x7b", "fp32", "overlapped exchange runs in 16 bits"),
        ("mixtral-8x7b", "fp16", ""),
        ("deepseek-v3", "bf16", ""),
    ],
)
def test_overlapped_exchange_needs_its_model(model: str, precision: str, rule: str) -> None:
    question = overlapping(model, precision=precision)
    assert names(question, documents.layout(question, ep=8)) == ({rule} if rule else set())


def test_overlapped_exchange_predicts_one_token_more_at_most() -> None:
    two = library.model("deepseek-v3").model_copy(update={"mtp_layers": 2})
    question = overlapping(two)  # type: ignore[arg-type]
    assert names(question, documents.layout(question, ep=8)) == {
        "overlapped exchange predicts one token"
    }


def test_shared_experts_beside_the_exchange_are_kept() -> None:
    """TransformerConfig: shared_experts in recompute_modules excludes the overlap."""
    shared = with_switches(library.stack("megatron"), {"moe_shared_expert_overlap": True})
    question = documents.recipe("deepseek-v3", 64, stack=shared)
    layout = documents.layout(
        question,
        ep=8,
        recompute=SELECTIVE,
        recompute_modules=module_mask(["shared_experts"]),
    )
    assert names(question, layout) == {"overlapped shared experts are kept"}


def test_an_all_gather_is_not_overlapped() -> None:
    """TransformerConfig: alltoall or flex beside another micro-batch, and beside shared experts;
    not both at once.
    """
    stack = library.stack("megatron")
    for settings, rules in (
        ({OVERLAP: True, "moe_dispatcher": "allgather"}, {"overlapped exchange is no all-gather"}),
        (
            {"moe_shared_expert_overlap": True, "moe_dispatcher": "allgather"},
            {"shared experts beside an all-to-all"},
        ),
        ({"moe_shared_expert_overlap": True, OVERLAP: True}, {"one overlap of the exchange"}),
        ({"moe_shared_expert_overlap": True}, set()),
    ):
        question = documents.recipe("deepseek-v3", 64, stack=with_switches(stack, settings))
        assert names(question, documents.layout(question, ep=8)) == rules


@pytest.mark.parametrize(
    "moments, words, zero, rules",
    [
        (None, {}, 0, set()),
        ("bf16", {}, 1, set()),
        ("fp32", {"precision": "fp8-tensorwise"}, 3, set()),
        ("bf16", {}, 0, {"narrow optimizer states are distributed"}),
        ("fp8", {"precision": "fp16"}, 1, {"narrow optimizer states belong to bf16"}),
        ("bf16", {"optimizer": "muon"}, 1, {"narrow optimizer states belong to Adam"}),
    ],
)
def test_narrow_optimizer_states(
    moments: str | None, words: dict[str, Any], zero: int, rules: set[str]
) -> None:
    """OptimizerConfig: the precision-aware optimizer is a distributed Adam; Transformer Engine's
    FusedAdam keeps remainders of bf16 weights.
    """
    stack = library.stack("megatron")
    if moments:
        stack = with_switches(stack, precise(moments))
    question = documents.recipe(stack=stack, **words)
    assert names(question, documents.layout(question, tp=8, zero=zero)) == rules


def test_states_are_as_wide_as_switches_say() -> None:
    """12 bytes; 4, 2 and 2 with moments in bf16; 7 is no sum of Megatron-LM's types."""
    plain = library.stack("megatron")
    for held, rules in ((12.0, set()), (7.0, {"Megatron has the optimizer states"})):
        stack = plain.with_figures({"states.optimizer_state_bytes": held})
        question = documents.recipe(stack=stack)
        assert names(question, documents.layout(question, tp=8, zero=1)) == rules


@pytest.mark.parametrize(
    "model, changes, rule",
    [
        ("qwen3-0.6b", {}, "FSDP2 needs untied embeddings"),
        ("llama3-8b", {"precision": "fp16"}, "FSDP2 has no fp16"),
    ],
)
def test_fsdp2_needs_its_model(model: str, changes: dict[str, Any], rule: str) -> None:
    """validate_args of --use-torch-fsdp2; Megatron's own FSDP has no such rule."""
    for stack, rules in (("megatron-fsdp2", {rule}), ("megatron", set())):
        question = documents.recipe(model, stack=stack, **changes)
        assert names(question, documents.layout(question, zero=3)) == rules


@pytest.mark.parametrize("version, legal", [("0.14", False), ("0.15", True), ("main", True)])
def test_four_bits_came_with_0_15(version: str, legal: bool) -> None:
    question = documents.recipe(precision="nvfp4", hardware="b200-sxm", framework_version=version)
    assert (
        "4 bits came with 0.15" not in names(question, documents.layout(question, tp=8))
    ) == legal


@pytest.mark.parametrize(
    "version, model, legal",
    [("0.15", "mixtral-8x7b", False), ("0.16", "mixtral-8x7b", True), ("0.15", "llama3-8b", True)],
)
def test_hybridep_came_with_0_16(version: str, model: str, legal: bool) -> None:
    question = documents.recipe(model, stack="nemo", framework_version=version)
    assert ("HybridEP came with 0.16" not in names(question, documents.layout(question))) == legal


@pytest.mark.parametrize("attention, legal", [("flash", True), ("fused", True), ("unfused", False)])
def test_fused_attention_runs_under_cp(attention: str, legal: bool) -> None:
    """NVIDIA/Megatron-LM@d98e8a64 runs hybrid_mr_mcore_te_tp2_pp1_cp4_dgx_a100_1N8G with
    --attention-backend fused.
    """
    question = documents.recipe(gpus=32, attention=attention)
    broken = names(question, documents.layout(question, tp=8, cp=4))
    assert broken == (set() if legal else {"attention runs under cp"})


def test_every_rule_has_a_case_of_its_own() -> None:
    """A rule whose name stands in no test is not tested."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [rule.name for rule in BY_FRAMEWORK["megatron"] if f'"{rule.name}"' not in text] == []
