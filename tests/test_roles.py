"""Plans by role beside a brute force over every combination of small questions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from planner import api
from planner.estimate import closed_form, estimate
from planner.layout import Layout, Layouts
from planner.rules.table import mask
from planner.search import search
from planner.search.answer import Plan, SearchResult
from planner.search.roles import ROOMIEST, SIMPLEST, earlier, family, is_old, knobs_away
from planner.specs import resolve
from planner.specs.recipe import Recipe
from tests.combinations import all_combinations
from tests.documents import recipe

pytestmark = pytest.mark.slow
QUESTIONS = [
    {"model": "llama3-8b", "gpus": 4, "cluster": "h100-sxm", "global_batch_size": 8},
    {"model": "qwen3-8b", "gpus": 8, "cluster": "a100-80g-sxm", "framework": "torch"},
    {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "framework": "deepspeed"},
]


@cache
def asked_once() -> SearchResult:
    return search(recipe("llama3-8b", 8, global_batch_size=64))


def by_role(plans: tuple[Plan, ...]) -> dict[str, Plan]:
    return {role: plan for plan in plans for role in plan.roles}


def fitting(asked: Recipe) -> tuple[Layouts, np.ndarray, np.ndarray]:
    """Every legal layout that fits, its seconds and bytes by closed form."""
    every = all_combinations(asked)
    legal = every[np.flatnonzero(mask(asked, every)[0])]
    closed = closed_form(asked, legal)
    columns = (closed.fits, closed.step_s, closed.memory_bytes)
    fits, step_s, memory = (np.broadcast_to(x, len(legal)) for x in columns)
    return legal[np.flatnonzero(fits)], step_s[fits], memory[fits]


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: f"{words['model']}-{words['gpus']}")
def test_each_role_is_that_of_a_brute_force(words: dict[str, object]) -> None:
    asked = resolve.recipe(api.question(**{"global_batch_size": 16, "seq_length": 4096} | words))
    plans = search(asked).plans
    roles = by_role(plans)
    assert {"best", "fastest", "roomiest", "simplest"} <= roles.keys() and len(plans) <= 6
    layouts, step_s, memory = fitting(asked)
    fastest_s = float(roles["fastest"].estimate.step_s)
    slower = {"roomiest": ROOMIEST, "simplest": SIMPLEST}
    for role, plan in roles.items():
        assert plan.estimate.fits and plan.estimate.step_s >= fastest_s * (1 - 1e-9)
        assert plan.estimate.step_s <= fastest_s * (1 + slower.get(role, 1e9))
        assert plan.estimate == estimate(asked, plan.layout, exact=True)

    def exact_s(row: int) -> float:
        return float(estimate(asked, layouts[row], exact=True).step_s)

    near = step_s <= fastest_s * (1 + ROOMIEST)
    own = float(closed_form(asked, roles["roomiest"].layout).memory_bytes)
    roomier = np.flatnonzero(near & (memory < own * (1 - 1e-9)))
    assert all(exact_s(row) > fastest_s * (1 + ROOMIEST) for row in roomier[:20].tolist())

    other = roles.get("other family")
    names = np.array([family(layouts[row]) for row in np.argsort(step_s)[:2000].tolist()])
    differs = np.flatnonzero(names != family(roles["fastest"].layout))
    if len(differs):
        assert other is not None
        first = float(np.sort(step_s)[differs[0]])
        assert float(closed_form(asked, other.layout).step_s) <= first * (1 + 1e-9)


def test_the_simplest_has_the_fewest_knobs_of_what_is_near() -> None:
    """By hand: tp and pp away are two knobs, and sp goes with tp; m and dp follow from others."""
    assert knobs_away(Layout(tp=8, pp=4, dp=2, m=64, sp=1)) == 2
    assert knobs_away(Layout(tp=8, pp=4, dp=2, m=64)) == 3
    assert knobs_away(Layout(dp=8)) == 0
    found = asked_once()
    simplest, computed = by_role(found.plans)["simplest"], found.computed
    assert computed is not None
    near = computed.fits & (computed.step_s <= found.fastest.estimate.step_s * (1 + SIMPLEST))
    assert knobs_away(simplest.layout) == np.min(knobs_away(computed.layout)[near])


def test_conservative_is_what_the_release_before_can_run() -> None:
    """Gated delta nets have context parallelism since Megatron-core 0.18, sparse attention since
    0.19: under that version no conservative plan of them has any.
    """
    asked = recipe("llama3-8b", 8, framework_version="0.19")
    before = earlier(asked)
    assert before is not None and before.framework_version == "0.18"
    assert earlier(recipe("llama3-8b", 8, framework_version="0.14")) is None
    assert "0.18" in " ".join(by_role(asked_once().plans)["conservative"].why)
    deltas = recipe("qwen3-next-80b-a3b", 64, framework_version="0.18")
    assert not is_old(deltas, Layout(cp=2, dp=32, m=16))[0]


def test_families() -> None:
    assert family(Layout(pp=4, zero=1)) == "a pipeline"
    assert family(Layout(pp=4, zero=3)) == "sharded weights"
    assert family(Layout(tp=8, sp=1)) == "tensor parallelism"
    assert family(Layout(dp=8)) == "replicas"


def test_plans_say_why_they_are_there() -> None:
    words = {"model": "llama3-8b", "gpus": 4, "cluster": "h100-sxm", "global_batch_size": 32}
    answer = api.recommend(**words)
    plans = answer.plans
    assert 2 <= len(plans) <= 6 and plans[0].roles[0] == "best"
    assert len({plan.layout for plan in plans}) == len(plans)
    held = [role for plan in plans for role in plan.roles]
    assert len(held) == len(set(held)) and all(plan.roles for plan in plans)
    for plan in plans[1:]:
        assert plan.why[0].startswith(f"{plan.roles[0]}: ") and str(plan.why[0]) in str(
            answer
        ).replace("\n    ", " ").replace("  ", " ")
    document = answer.to_dict()["plans"]
    assert [plan["roles"] for plan in document] == [list(plan.roles) for plan in plans]
    flat = api.recommend(**words, top=3)
    assert len(flat.plans) == 3 and flat.plans[0].layout == plans[0].layout
