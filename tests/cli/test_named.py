"""Names that nobody knows are one error, and lists can be narrowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

WORDS = ("--model", "llama3-8b", "--gpus", "8", "--cluster", "h100-sxm")


@pytest.mark.parametrize(
    ("option", "names", "near"),
    [
        ("--stack", "nemmo,megatron", "did you mean nemo"),
        ("--software", "megatron-cor@0.18,deepspeed", "did you mean megatron-core"),
        ("--software", "torchtitan@0.1,torchtitan@0.2", "must be 0.2 or 0.3"),
    ],
)
def test_an_unknown_name_is_no_row(
    ppplan: Callable[..., Any], option: str, names: str, near: str
) -> None:
    ran = ppplan("compare", *WORDS, option, names)
    assert ran.code == 2 and ran.out == "" and near in ran.err


def test_switches_of_one_framework(ppplan: Callable[..., Any]) -> None:
    listed = json.loads(ppplan("switches", "--framework", "torch", "--json").out)
    assert {entry["framework"] for entry in listed["switches"]} == {"torch"}
    ran = ppplan("switches", "cuda_graph", "--framework", "torch")
    assert ran.code == 2 and "is one of megatron" in ran.err
    assert ppplan("switches", "--framework", "foo").code == 2


def test_what_a_name_stands_for_is_said_first(ppplan: Callable[..., Any]) -> None:
    lines = ppplan("stacks", "nemo").out.splitlines()
    assert lines[0].startswith("name: nemo") and lines[1].startswith("stands_for: megatron-core")
