"""What DeepSpeed's switches need: assertions of its engine and optimizers, 0.19.8 (the file that
asserts stands beside each case), and what its code leaves without effect.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE
from planner.rules import switches
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.switches.switch import Value
from planner.specs.switches.table import with_switches
from tests import documents

CPU = OFFLOAD_CODE["optimizer-cpu"]
Case = tuple[dict[str, Value], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
# Of each rule: switches, words and knobs of a run that it lets through, then of one it refuses.
CASES: dict[str, Case] = {
    # stage_1_and_2.py _configure_moe_settings
    "split experts need contiguous gradients": (
        {"contiguous_gradients": False},
        {"model": "mixtral-8x7b"},
        {"zero": 1, "ep": 8},
        {"model": "mixtral-8x7b"},
        {"zero": 2, "ep": 8},
    ),
    "split experts scatter gradients": (
        {"reduce_scatter": False},
        {"model": "mixtral-8x7b"},
        {"zero": 1, "ep": 8},
        {"model": "mixtral-8x7b"},
        {"zero": 2, "ep": 8},
    ),
    # stage3.py: Muon and reduce scatter cannot be used together
    "Muon reduces whole gradients": (
        {},
        {"optimizer": "muon"},
        {"zero": 2},
        {"optimizer": "muon"},
        {"zero": 3},
    ),
    # stage_1_and_2.py: a multiple of nccl_start_alignment_factor, 2
    "gathers are aligned": (
        {"allgather_bucket_size": 999},
        {},
        {"zero": 3},
        {},
        {"zero": 2},
    ),
    # partition_parameters.py all_gather_coalesced: not beside a secondary tensor
    "an all-reduce fetches plain weights": (
        {"stage3_use_all_reduce_for_fetch_params": True},
        {},
        {"zero": 3},
        {},
        {"zero": 3, "hpz": 8},
    ),
    # CUDAQuantizer converts to half
    "quantized weights are of 16 bits": (
        {"zero_quantized_weights": True},
        {"precision": "bf16"},
        {"zero": 3},
        {"precision": "fp32"},
        {"zero": 3},
    ),
    # stage3.py __avg_scatter_grads: num_nodes > 1
    "quantized gradients cross nodes": (
        {"zero_quantized_gradients": True},
        {"precision": "fp16", "gpus": 16},
        {"zero": 3},
        {"precision": "fp16", "gpus": 8},
        {"zero": 3},
    ),
    # csrc/quantization: __half*
    "quantized gradients are fp16": (
        {"zero_quantized_gradients": True},
        {"precision": "fp16", "gpus": 16},
        {"zero": 3},
        {"precision": "bf16", "gpus": 16},
        {"zero": 3},
    ),
    # utils/groups.py _get_local_all_to_all_group
    "quantized gradients fill nodes": (
        {"zero_quantized_gradients": True},
        {"precision": "fp16", "gpus": 16},
        {"zero": 3},
        {"precision": "fp16", "gpus": 16},
        {"zero": 3, "cp": 2},
    ),
    # engine.py _validate_zero3_moe_compatibility
    "quantized gradients have no experts": (
        {"zero_quantized_gradients": True},
        {"precision": "fp16", "model": "mixtral-8x7b"},
        {"zero": 3},
        {"precision": "fp16", "model": "mixtral-8x7b"},
        {"zero": 3, "ep": 8},
    ),
    # zero/config.py offload_ratio_check
    "a part on the host needs zero 3": (
        {"offload_ratio": 0.5},
        {},
        {"zero": 3, "offload": CPU},
        {},
        {"zero": 2, "offload": CPU},
    ),
    # engine.py chooses SuperOffloadOptimizer_Stage3 there alone
    "SuperOffload needs zero 3": (
        {"super_offload": True},
        {},
        {"zero": 3, "offload": CPU},
        {},
        {"zero": 1, "offload": CPU},
    ),
    # base_optimizer.py _configure_master_weights, config.py _do_error_check
    "narrow states are Adam's on the GPU": (
        {"bf16_states": True},
        {},
        {"zero": 1},
        {},
        {"zero": 0},
    ),
    # engine.py _configure_distributed_model
    "sequences are reduced as they train": (
        {"seq_parallel_communication_data_type": "bf16"},
        {"precision": "bf16"},
        {"zero": 2, "cp": 2},
        {"precision": "fp16"},
        {"zero": 2, "cp": 2},
    ),
    "AutoTP overlaps": (
        {"tp_overlap_comm": True},
        {},
        {"zero": 1, "tp": 2},
        {},
        {"zero": 1, "tp": 2, "pp": 2},
    ),
    "Megatron-DeepSpeed partitions activations": (
        {"partition_activations": True},
        {},
        {"zero": 1, "tp": 2, "pp": 2, "recompute": RECOMPUTE_CODE["full"]},
        {},
        {"zero": 1, "tp": 2, "recompute": RECOMPUTE_CODE["full"]},
    ),
    "Liger's loss has all logits": (
        {"liger_kernel": True},
        {},
        {"zero": 1},
        {},
        {"zero": 1, "pp": 2},
    ),
}
FROZEN = ("quantized frozen weights are sharded",)
WITH_OTHERS = (
    "quantized gradients are scattered",
    "quantized gradients are not Muon's",
    "a part on the host is Adam's",
    "SuperOffload updates Adam",
)
"""Rules that no run breaks alone, or whose optimizer another rule refuses first."""


def refusals(settings: dict[str, Value], words: dict[str, Any], knobs: dict[str, Any]) -> set[str]:
    known = {"framework": "deepspeed", "model": "llama3-8b", "gpus": 32, **words}
    software = with_switches(library.stack("deepspeed"), settings)
    question = documents.recipe(software=software, **known)
    return {found.rule for found in breaches(question, documents.layout(question, sp=0, **knobs))}


@pytest.mark.parametrize("rule", CASES)
def test_a_switch_needs_what_deepspeed_asserts(rule: str) -> None:
    settings, words, knobs, other_words, other_knobs = CASES[rule]
    assert rule not in refusals(settings, words, knobs)
    assert rule in refusals(settings, other_words, other_knobs)


def test_quantized_gradients_are_scattered() -> None:
    """stage3.py: when enable all_to_all_reduce, reduce_scatter should also be enabled."""
    both: dict[str, Value] = {"zero_quantized_gradients": True, "reduce_scatter": False}
    assert "quantized gradients are scattered" in refusals(
        both, {"precision": "fp16", "gpus": 16}, {"zero": 3}
    )


def test_every_rule_of_a_switch_has_its_case() -> None:
    rules = {rule.name for rule in switches.of("deepspeed")}
    assert rules == {*CASES, *FROZEN, *WITH_OTHERS}
