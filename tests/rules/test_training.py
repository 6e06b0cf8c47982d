"""Rules of optimizers, adapters and short samples: a question that holds each and one that breaks
it.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.layout import OFFLOAD_CODE
from planner.rules import training
from planner.rules.table import breaches
from planner.search import search
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.workload import Lora
from tests import documents

CPU, NVME = OFFLOAD_CODE["optimizer-cpu"], OFFLOAD_CODE["optimizer-nvme"]
DRIVES = library.hardware("h100-sxm", ("node.nvme_gbytes_per_s=12",))
SHORT = {"packing": True, "mean_length": 512}
Words = dict[str, Any]

MEGATRON: dict[str, tuple[Words, Words, Words, Words]] = {
    # rule: (question that holds, its layout, question that breaks, its layout)
    "Megatron has the optimizer": ({"optimizer": "sgd"}, {}, {"optimizer": "adafactor"}, {}),
    "Muon and Lion came with 0.18": (
        {"optimizer": "muon", "framework_version": "0.18"},
        {},
        {"optimizer": "lion", "framework_version": "0.17"},
        {},
    ),
    "Megatron's FSDP updates by Adam or SGD": (
        {"optimizer": "sgd"},
        {"zero": 3, "tp": 1},
        {"optimizer": "muon"},
        {"zero": 2},
    ),
    "Muon and Lion have no fp16": (
        {"optimizer": "muon"},
        {},
        {"optimizer": "muon", "precision": "fp16"},
        {},
    ),
    "host memory holds Adam's states": (
        {},
        {"offload": CPU},
        {"optimizer": "sgd"},
        {"offload": CPU},
    ),
    "adapters split over tp": ({"lora": Lora(rank=16)}, {}, {"lora": Lora(rank=12)}, {}),
    "Megatron keeps frozen weights in 16 bits": (
        {"lora": Lora(rank=16)},
        {},
        {"lora": Lora(rank=16, base="nf4")},
        {},
    ),
    "packed samples come one sequence at a time": (SHORT, {"mbs": 1}, SHORT, {"mbs": 2}),
    "packed samples need a kernel for them": (SHORT, {}, {**SHORT, "attention": "unfused"}, {}),
}
DEEPSPEED: dict[str, tuple[Words, Words, Words, Words]] = {
    "DeepSpeed has the optimizer": (
        {"optimizer": "adafactor"},
        {},
        {"optimizer": "precision-aware"},
        {},
    ),
    "Muon came with 0.18": (
        {"optimizer": "muon", "framework_version": "0.18"},
        {},
        {"optimizer": "muon", "framework_version": "0.17"},
        {},
    ),
    "Muon shards no weights before 0.19": (
        {"optimizer": "muon", "switches": {"reduce_scatter": False}},
        {"zero": 3},
        {
            "optimizer": "muon",
            "framework_version": "0.18",
            "switches": {"reduce_scatter": False},
        },
        {"zero": 3},
    ),
    "Muon needs matrices": (
        {"optimizer": "muon"},
        {"zero": 2},
        {"optimizer": "muon"},
        {"zero": 1, "pp": 4},
    ),
    "host processors have the optimizer": (
        {"optimizer": "lion"},
        {"offload": CPU},
        {"optimizer": "sgd"},
        {"offload": CPU},
    ),
    "lion stays in memory": (
        {"optimizer": "lion", "hardware": DRIVES},
        {"zero": 3, "offload": CPU},
        {"optimizer": "lion", "hardware": DRIVES},
        {"zero": 3, "offload": NVME},
    ),
    "Megatron-DeepSpeed has Adam": (
        {},
        {"tp": 2, "pp": 2},
        {"optimizer": "lion"},
        {"tp": 2, "pp": 2},
    ),
    "adapters are not split by AutoTP": (
        {"lora": Lora(rank=16)},
        {},
        {"lora": Lora(rank=16)},
        {"tp": 2},
    ),
    "packed samples need a kernel for them": (SHORT, {}, {**SHORT, "attention": "unfused"}, {}),
}


def names(question: Recipe, **knobs: Any) -> set[str]:
    return {found.rule for found in breaches(question, documents.layout(question, **knobs))}


@pytest.mark.parametrize("rule", MEGATRON)
def test_megatron(rule: str) -> None:
    holding, whole, breaking, broken = MEGATRON[rule]
    assert names(documents.recipe(**holding), **{"tp": 8, **whole}) == set()
    assert names(documents.recipe(**breaking), **{"tp": 8, **broken}) == {rule}


@pytest.mark.parametrize("rule", DEEPSPEED)
def test_deepspeed(rule: str) -> None:
    holding, whole, breaking, broken = DEEPSPEED[rule]
    own = {"stack": "deepspeed", "framework": "deepspeed", "framework_version": "0.19"}
    assert names(documents.recipe(**{**own, **holding}), **{"sp": 0, "zero": 1, **whole}) == set()
    assert names(documents.recipe(**{**own, **breaking}), **{"sp": 0, "zero": 1, **broken}) == {
        rule
    }


def test_every_rule_has_its_case() -> None:
    assert {rule.name for rule in training.MEGATRON} == set(MEGATRON)
    assert {rule.name for rule in training.DEEPSPEED} == set(DEEPSPEED)


def test_a_sentence_names_the_way_out() -> None:
    [found] = breaches(
        documents.recipe(lora=Lora(rank=12)), documents.layout(documents.recipe(), tp=8)
    )
    assert (
        found.message
        == "tp must divide the adapters' rank, but got tp=8 and lora_rank 12; try lora_rank 16 or a"
        " smaller tp"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"optimizer": "adafactor"}, "but got adafactor; try adam, or --framework deepspeed"),
        (
            {"lora": Lora(rank=16, base="nf4")},
            "but got lora_base nf4; try 16bit, or --framework deepspeed",
        ),
    ],
)
def test_a_search_without_a_legal_layout_says_the_way_out(words: Words, says: str) -> None:
    found = search(documents.recipe(**words))
    assert found.legal == 0 and not found.plans and found.limits.endswith(says)
