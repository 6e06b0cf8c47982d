"""Terms of a step: each is declared once, with its words and its group."""

from __future__ import annotations

from dataclasses import fields

import pytest

from planner import api
from planner.cost.terms import StepTime
from planner.estimate import estimate
from planner.search import search
from planner.specs import resolve
from planner.tune.study.space import candidate


def test_every_term_has_words_and_one_group() -> None:
    grouped = [term for terms in StepTime.groups().values() for term in terms]
    assert sorted(grouped) == sorted(f.name for f in fields(StepTime))
    assert all(StepTime.texts().values())


@pytest.mark.parametrize("lora", [0, 16])
def test_shares_of_a_candidate_add_up_to_one_with_and_without_adapters(lora: int) -> None:
    words = {"lora_rank": lora} if lora else {}
    recipe = resolve.recipe(
        api.question(model="llama3-8b", gpus=8, cluster="h100-sxm", global_batch_size=64, **words)
    )
    layout = search(recipe, top=1).plans[0].layout
    forecast = estimate(recipe, layout)
    assert (float(forecast.time.adapter_s) > 0) == bool(lora)
    assert sum(candidate(layout, forecast).shares) == pytest.approx(1.0, abs=1e-12)
