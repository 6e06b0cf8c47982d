"""A run over several datacentres splits evenly by replicas or by stages."""

from __future__ import annotations

import pytest

from planner import api
from planner.rules.table import breaches
from planner.specs import resolve


@pytest.mark.parametrize("framework", ["megatron", "deepspeed"])
@pytest.mark.parametrize(
    "gpus, pp, dp, legal", [(24, 1, 3, False), (16, 1, 2, True), (48, 2, 3, True), (32, 1, 4, True)]
)
def test_sites_hold_whole_replicas_or_stages(
    framework: str, gpus: int, pp: int, dp: int, legal: bool
) -> None:
    figures = ("fabric.sites=2", "fabric.site_gbytes_per_s=50")
    words = {
        "model": "llama3-8b",
        "cluster": "h100-sxm",
        "set": figures,
        "framework": framework,
        "global_batch_size": 96,
    }
    recipe, layout = resolve.recipe_and_layout(api.question(gpus=gpus, tp=8, pp=pp, dp=dp, **words))
    broken = [one.rule for one in breaches(recipe, layout)]
    assert ("sites hold whole replicas or stages" in broken) is not legal
