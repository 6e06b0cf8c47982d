"""Days, dollars and energy of a trillion tokens, by hand and against what Llama 3.1 405B is
reported to have used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner import api
from planner.advice.price import Spent, spent
from planner.cost.goodput import goodput
from planner.estimate import estimate
from planner.specs import resolve

WORDS: dict[str, Any] = {"model": "llama3-8b", "gpus": 16, "tp": 8, "global_batch_size": 64}


def planned(
    cluster: str, tokens_per_s_per_gpu: float, price: float | None = None, **more: Any
) -> Spent:
    recipe, layout = resolve.recipe_and_layout(api.question(cluster=cluster, **{**WORDS, **more}))
    said = replace(estimate(recipe, layout, exact=True), tokens_per_s_per_gpu=tokens_per_s_per_gpu)
    return spent(recipe, said, None, price)


def test_a_trillion_tokens_by_hand() -> None:
    """16 GPUs at 5,000 tokens/s each: 1.25e7 s, 144.7 days, 55,556 GPU hours; at $2 $111,111; 700 W
    x 1.5 a GPU: 58.3 MWh.
    """
    found = planned("h100-sxm", 5000, price=2.0)
    assert found.days == pytest.approx(1.25e7 / 86_400)
    assert found.gpu_hours == pytest.approx(1e12 / 5000 / 3600)
    assert found.usd == pytest.approx(111_111.1, rel=1e-6)
    assert found.energy_mwh == pytest.approx(55_555.6 * 700 * 1.5 / 1e6, rel=1e-6)


def test_a_stated_price_goes_before_a_listed_one() -> None:
    listed = planned("aws-p5", 5000)
    assert listed.usd_per_gpu_hour and listed.usd == pytest.approx(
        listed.gpu_hours * listed.usd_per_gpu_hour
    )
    assert any(f"${listed.usd_per_gpu_hour:,.2f} a GPU hour" in one for one in listed.assumed)
    assert planned("aws-p5", 5000, price=1.0).usd == pytest.approx(listed.gpu_hours)
    assert planned("h100-sxm", 5000).usd is None


def test_failures_cost_as_much_more_as_they_take() -> None:
    recipe, layout = resolve.recipe_and_layout(api.question(cluster="h100-sxm", **WORDS))
    said = estimate(recipe, layout, exact=True)
    failing = goodput(recipe.gpus, 3600.0 * 160, 60.0, 600.0, said.step_s, recipe.tokens)
    alone, met = spent(recipe, said, None, 2.0), spent(recipe, said, failing, 2.0)
    assert met.days == pytest.approx(failing.days_per_trillion_tokens)
    assert alone.usd is not None and met.usd == pytest.approx(
        alone.usd / float(failing.goodput_share)
    )


def test_gpu_hours_of_llama_3_405b() -> None:
    """30.84 M H100 hours (model card of Llama 3.1) for 15.6 T tokens: 1.98 M a trillion, restarts
    and long contexts included.
    """
    words = {
        "model": "llama3-405b",
        "cluster": "h100-sxm",
        "gpus": 16_384,
        "tp": 8,
        "pp": 16,
        "v": 8,
        "global_batch_size": 2048,
    }
    recipe, layout = resolve.recipe_and_layout(api.question(**words, seq_length=8192))
    said = estimate(recipe, layout, exact=True)
    assert spent(recipe, said, None).gpu_hours == pytest.approx(30.84e6 / 15.6, rel=0.15)
