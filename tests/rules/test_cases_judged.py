"""CASES of test_rules.py before Megatron-LM's own parser, configuration, process groups and model:
a layout that holds a rule is accepted, one that breaks it is refused for what the rule says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import documents
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import verdicts
from tests.rules.test_rules import CASES, IN_NO_PARSER

pytestmark = pytest.mark.judge

REFUSALS = {
    "experts split over ep": "Number of experts should be a multiple of expert model parallel",
    "gpus split over etp * ep * pp": "not divisible by expert_tensor_model_pipeline_parallel",
    "expert width splits over etp": "is not divisible by 5",
    "shared experts split over tp": "is not divisible by 4",
    "biases of experts need etp 1": "Bias in Moe is only supported when ETP==1",
    "exchanged heads are of cp ranks": "AssertionError",
    "offload needs the distributed optimizer": "only supported with distributed optimizer",
    "FSDP2 has no pipeline": "not supported with pipeline parallelism",
    "FSDP2 splits no experts": "not supported with expert parallelism",
    "virtual stages without overlap need three ranks": "size should be greater than 2",
    "heads split over tp": "num_attention_heads (64) must be a multiple",
    "key-value heads split over tp": "num_query_groups (10) must be a multiple or divisor",
    "ffn splits over tp": "27648 is not divisible by 10",
    "sequence splits over cp": "seq-length should be a multiple of 2 * context-parallel-size",
    "recompute modules fit the model": "moe_act in recompute_modules",
    "virtual stages need a pipeline": "pipeline-model-parallel size should be greater than 1",
    "one way to split the layers": "at the same time with account_for_embedding",
    "layers split over stages": "layers should be divisible by the pipeline-model-parallel size",
    "layers of a stage split over v": "should be divisible by vp_size 3",
    "first and last layers leave an even middle": "number of layers at middle stage: 41",
    "first and last layers split over v": "number of layers at first stage: 19",
    "stage layout is whole": "Number of decoder layers 81",
    "micro-batches interleave": "m=6 leaves a rest of 2 in groups of 4",
}
"""What Megatron-LM says of the breaking layout. The interleaving is the judge's copy of two checks
that need a running pipeline.
"""
BY_THE_MODEL = {
    "expert width splits over etp",
    "shared experts split over tp",
    "ffn splits over tp",
    "layers of a stage split over v",
}
"""Refused when the layers are made, not before."""


def test_every_rule_is_judged_or_excepted() -> None:
    assert not REFUSALS.keys() & IN_NO_PARSER.keys()
    assert REFUSALS.keys() | IN_NO_PARSER.keys() == CASES.keys()


@pytest.fixture(scope="module")
def judged() -> dict[str, dict[str, Any]]:
    """The verdicts by rule and side, of one process."""
    cases = []
    for rule, (model, changes, holding, breaking) in CASES.items():
        recipe = documents.recipe(model, **changes)
        for side, knobs in (("holds", holding), ("breaks", breaking)):
            case = megatron_sweep.command(
                f"{rule}: {side}", recipe, documents.layout(recipe, **knobs)
            )
            cases.append(replace(case, build=rule in BY_THE_MODEL))
    return {answer["name"]: answer for answer in verdicts(cases)}


@pytest.mark.parametrize("rule", CASES)
def test_megatron_accepts_the_layout_that_holds(
    judged: dict[str, dict[str, Any]], rule: str
) -> None:
    answer = judged[f"{rule}: holds"]
    assert answer["accepted"], answer["message"]


@pytest.mark.parametrize("rule", REFUSALS)
def test_megatron_refuses_the_layout_that_breaks(
    judged: dict[str, dict[str, Any]], rule: str
) -> None:
    answer = judged[f"{rule}: breaks"]
    assert not answer["accepted"], "Megatron lets it pass: is the rule false?"
    assert REFUSALS[rule] in answer["message"]


@pytest.mark.parametrize("rule", IN_NO_PARSER)
def test_what_is_excepted_passes_the_parser(judged: dict[str, dict[str, Any]], rule: str) -> None:
    answer = judged[f"{rule}: breaks"]
    assert answer["accepted"], f"the parser knows the rule: {answer['message']}"
