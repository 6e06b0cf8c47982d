"""The search: what it proposes, what it refuses, what it says when nothing fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.terms import Estimate
from planner.enumerate import menus
from planner.estimate import closed_form, closed_time, estimate, parts
from planner.layout import SCHEDULES, Layouts
from planner.rules.table import breaches, mask
from planner.search import branch, fitting, floors, min_gpus, search
from planner.search.answer import COSTS
from planner.search.branch import explore
from planner.search.plans import simplicity
from planner.search.switches import differing
from planner.specs import resolve
from planner.specs.recipe import Bounds, Recipe
from planner.specs.switches.table import settings_of, with_switches
from tests.combinations import all_combinations
from tests.documents import recipe

pytestmark = pytest.mark.slow


@st.composite
def small_questions(draw: st.DrawFn) -> Recipe:
    """Few enough combinations to compute each."""
    models = ["llama3-8b", "qwen3-8b", "gpt-1.7b", "qwen3-30b-a3b", "deepseek-v2-lite"]
    question = api.question(
        model=draw(st.sampled_from(models)),
        gpus=draw(st.sampled_from([2, 4, 6, 8])),
        seq_length=draw(st.sampled_from([2048, 4096, 8192])),
        global_batch_size=draw(st.sampled_from([8, 12, 16])),
        cluster=draw(st.sampled_from(["h100-sxm", "a100-40g-sxm", "l40s-pcie"])),
        framework=draw(st.sampled_from(["megatron", "torch", "deepspeed"])),
    )
    return resolve.recipe(question)


def fitting_estimates(asked: Recipe, every: Layouts) -> Iterator[Estimate]:
    """The fastest of each batch of legal layouts that fit."""
    if not len(every):
        return
    ok, _ = mask(asked, every)
    legal = every[np.flatnonzero(ok)]
    for at in range(0, int(ok.sum()), branch.CHUNK):
        part = legal[at : at + branch.CHUNK]
        closed = closed_form(asked, part)
        fits = np.broadcast_to(closed.fits, len(part))
        if fits.any():
            row = int(np.argmin(np.where(fits, closed.step_s, np.inf)))
            yield closed_form(asked, part[row])


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["llama3-8b", "qwen3-32b", "gpt-18b"]),
    st.sampled_from([8, 12, 64, 96]),
    st.sampled_from(["h100-sxm", "l40s-pcie"]),
)
def test_every_plan_is_legal_fits_and_fills_the_gpus(model: str, gpus: int, cluster: str) -> None:
    asked = recipe(model, gpus, hardware=cluster, seq_length=2048, global_batch_size=96)
    for plan in search(asked).plans:
        assert not breaches(asked, plan.layout)
        assert plan.layout.gpus == gpus and plan.layout.gbs == 96
        assert plan.estimate.oom_probability < 0.1


@settings(max_examples=6, deadline=None)
@given(small_questions())
def test_the_fastest_is_that_of_a_brute_force(asked: Recipe) -> None:
    """Every combination of the menus computed by itself: none that is legal and fits is faster, and
    as many are covered.
    """
    every = all_combinations(asked)
    fastest = min((each.step_s for each in fitting_estimates(asked, every)), default=np.inf)
    explored = explore(asked, 1)
    found = explored.computed
    assert np.min(found.step_s[found.fits], initial=np.inf) <= fastest * (1 + 1e-9)
    assert explored.counts.covered == len(every)


@settings(max_examples=6, deadline=None)
@given(small_questions(), st.randoms(use_true_random=False))
def test_bounds_are_below_what_they_bound(asked: Recipe, random: Random) -> None:
    """The simulated pipeline and the closed form, with and without recomputation."""
    every = all_combinations(asked)
    legal = np.flatnonzero(mask(asked, every)[0]) if len(every) else np.zeros(0, int)
    for row in random.sample(legal.tolist(), min(len(legal), 4)):
        layout, column = every[int(row)], every[np.array([row])]
        known = parts(asked, column)
        exact = estimate(asked, layout, exact=True)
        bound = floors.simulated_s(asked, column, known, closed_time(asked, column, known))
        assert float(bound[0]) <= exact.step_s * (1 + 1e-9)
        plain = replace(column, recompute=np.zeros(1, int), recompute_modules=0, recompute_layers=0)
        split = floors.split_s(asked, replace(plain, v=1, zero=1))
        assert float(np.ravel(split)[0]) <= exact.step_s * (1 + 1e-9)
        if exact.fits and closed_form(asked, column).fits.all():
            assert floors.split_may_fit(asked, plain).all()
            assert floors.may_fit(asked, plain, parts(asked, plain)).all()


def test_a_bound_that_is_too_high_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brute force finds what a wrong bound discards."""
    asked = recipe("llama3-8b", 8, global_batch_size=16)
    right = explore(asked, 1).computed
    bound = floors.step_s
    monkeypatch.setattr(floors, "step_s", lambda *words: 1.3 * bound(*words))
    wrong = explore(asked, 1).computed
    fastest = [np.min(found.step_s[found.fits], initial=np.inf) for found in (right, wrong)]
    assert fastest[0] < fastest[1]


def test_an_odd_number_of_layers_on_two_ranks_is_split_either_way() -> None:
    """61 layers: 30 and 31 with the embedding counted, 31 and 30 with the loss; with both nothing
    divides ([megatron-core] get_num_layers_to_build).
    """
    table = menus.stagings(recipe("deepseek-v3", 8), 2)
    plain = table["v"] == 1
    names = ("account_for_embedding", "account_for_loss")
    pairs = zip(*(table[name][plain].tolist() for name in names), strict=True)
    assert sorted(pairs) == [(0, 1), (1, 0)]


def test_a_fixed_group_bounds_by_layouts_that_have_it() -> None:
    asked = recipe("llama3-8b", 16, knobs={"group": Bounds(low=8, high=8)})
    found = explore(asked, 1).computed
    assert found.fits.any() and (np.asarray(found.layout.group) == 8).all()


def test_counts_add_up() -> None:
    found = search(recipe("llama3-70b", 64))
    counts = found.counts
    ruled_out = sum(counts.removed.values()) + counts.too_large + counts.slower
    assert counts.covered == ruled_out + counts.computed > 1_000_000
    assert found.proved and 0 < found.simulated <= counts.computed


@pytest.mark.parametrize(
    "knobs",
    [{"cp": 2}, {"zero": 3}, {"zero": 2}, {"offload": 1}, {"sp": 0}, {"v": 1}, {"cp": 1, "v": 4}],
)
def test_no_fixed_knob_beats_the_free_search(knobs: dict[str, int]) -> None:
    """Lines of the free search that once lost to a knob: cp, ZeRO 2 and 3, offload, sp off."""
    free = search(recipe("llama3-70b", 64, global_batch_size=128)).fastest.estimate
    bounds = {name: Bounds(low=value, high=value) for name, value in knobs.items()}
    fixed = search(recipe("llama3-70b", 64, global_batch_size=128, knobs=bounds), top=1).plans
    assert all(plan.estimate.step_s >= free.step_s * (1 - 1e-9) for plan in fixed)


def test_no_fixed_switch_beats_the_free_search() -> None:
    asked = recipe("deepseek-v2-lite", 8, global_batch_size=32)
    free = search(asked, fixed=()).fastest.estimate
    for set_ in ({"cuda_graph": "layers"}, {"moe_dispatcher": "deepep", "cuda_graph": "none"}):
        other = asked.model_copy(update={"software": with_switches(asked.software, set_)})
        fixed = search(other, top=1, fixed=set_).plans
        assert all(plan.estimate.step_s >= free.step_s * (1 - 1e-9) for plan in fixed)


def test_a_plan_has_no_more_switches_turned_than_it_needs() -> None:
    """With any of them as the software has it, the step is longer than what cannot be told apart
    from the fastest; or it does not fit, or breaks a rule.
    """
    asked = recipe("deepseek-v3", 256, hardware="gb200-nvl72", global_batch_size=2048)
    found = search(asked, fixed=())
    best, own = found.plans[0], settings_of(asked.software)
    assert found.turned and found.turned["moe_dispatcher"] == "hybridep"
    turned = differing(found.recipe, asked)
    for name in turned:
        software = with_switches(found.recipe.software, {name: own[name]})
        without = found.recipe.model_copy(update={"software": software})
        if not breaches(without, best.layout):
            other = estimate(without, best.layout, exact=True)
            assert not other.fits or other.step_s > found.fastest.estimate.step_s * 1.005


def test_the_best_is_the_simplest_of_what_cannot_be_told_apart() -> None:
    found = search(recipe("llama3-70b", 32))
    best, fastest = found.plans[0], found.fastest
    assert best.estimate.step_s <= fastest.estimate.step_s * 1.02
    assert simplicity(best.layout) <= simplicity(fastest.layout)
    assert "best" in best.roles and "fastest" in fastest.roles


def test_a_list_of_the_fastest_has_different_splits_in_order_of_time() -> None:
    plans = search(recipe("llama3-70b", 64), top=20).plans
    splits = [(p.layout.tp, p.layout.pp, p.layout.dp, p.layout.cp, p.layout.mbs) for p in plans]
    assert len(set(splits[1:])) == 19 and len(plans) == 20
    others = [plan.estimate.step_s for plan in plans[1:]]
    assert others == sorted(others)


@pytest.mark.parametrize(
    ("knob", "bounds"),
    [
        ("tp", (8, 8)),
        ("pp", (1, 4)),
        ("mbs", (2, 2)),
        ("v", (1, 1)),
        ("recompute", (2, 2)),
        ("dp", (4, 8)),
    ],
)
def test_limits_of_the_question_are_kept(knob: str, bounds: tuple[int, int]) -> None:
    asked = recipe("llama3-70b", 64, knobs={knob: Bounds(low=bounds[0], high=bounds[1])})
    plans = search(asked).plans
    assert plans and all(bounds[0] <= getattr(p.layout, knob) <= bounds[1] for p in plans)


def test_405b_on_16_stages_needs_both_accounting_switches() -> None:
    """126 layers: only 126 + 2 divides by 16 (Llama 3 paper, sec. 3.3.2, took a layer off both
    ends); else the ends have layers of their own.
    """
    asked = recipe(
        "llama3-405b", 512, knobs={"pp": Bounds(low=16, high=16), "tp": Bounds(low=8, high=8)}
    )
    plans = search(asked).plans
    ends = {(p.layout.account_for_embedding, p.layout.account_for_loss) for p in plans}
    assert plans and ends <= {(1, 1), (0, 0)}
    assert all(p.layout.first_layers or p.layout.account_for_loss for p in plans)


def test_nothing_fits_answers_with_changes_that_do() -> None:
    asked = recipe("llama3-405b", 8, knobs={"offload": Bounds(low=0, high=0)})
    found = search(asked)
    assert not found.plans and found.nearest
    assert found.min_gpus == min_gpus(asked)
    for change in found.nearest:
        assert change.estimate.fits
    fewest = found.min_gpus or 0
    assert fitting(asked, fewest) is not None and fitting(asked, fewest - 8) is None


def test_what_would_let_it_fit_comes_cheapest_first() -> None:
    """A knob left to the search costs nothing, bf16 moments cost digits, GPUs cost money."""
    words = {"gpus": 16, "cluster": "h100-sxm", "offload": "none", "own_switches": True}
    asked = api.question(model="llama3-70b", **words)
    found = api.recommend(asked).search
    assert found is not None and not found.plans
    costs = [change.costs for change in found.nearest or ()]
    assert costs == sorted(costs, key=COSTS.index) and costs[0] == "nothing"
    assert costs[-1] == "more GPUs" and "other numbers" in costs
    gpus = [change.layout.gpus for change in found.nearest or () if change.costs == "more GPUs"]
    assert gpus == sorted(gpus)


def test_a_schedule_of_other_software_is_planned_on_request_and_marked() -> None:
    asked = api.question(model="llama3-70b", gpus=64, cluster="h100-sxm", schedule="zb-h1")
    answer = api.recommend(asked, top=2)
    assert answer.search is not None
    plans = answer.search.plans
    assert plans and all(SCHEDULES[p.layout.schedule] == "zb-h1" and p.layout.v == 1 for p in plans)
    assert any("planned on request" in note for note in answer.recipe.assumed)


def test_what_megatron_cannot_run_is_not_written(tmp_path: object) -> None:
    asked = api.question(model="llama3-70b", gpus=64, cluster="h100-sxm", schedule="zbv")
    answer = api.recommend(asked, out=f"{tmp_path}/plan")
    assert [path.rsplit("/", 1)[1] for path in answer.files] == [
        "plan.yaml"
    ] and "schedule" in answer.refused


def test_the_peak_that_is_named_is_the_one_that_counts() -> None:
    """A V100 has no bf16: its share of peak is of fp16 (125 TFLOP/s) whatever the precision."""
    asked = api.question(
        model="gpt-1.7b",
        gpus=8,
        cluster="v100-32g-sxm2",
        precision="fp32",
        seq_length=2048,
        global_batch_size=64,
    )
    assert "of the fp16 peak" in " ".join(api.recommend(asked, top=1).plans[0].why)
