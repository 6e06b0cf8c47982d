"""Layers dealt to stages: as well as every cut tried by brute force, within memory, whole, and
faster than what the even splits offer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.enumerate.balanced import dealt
from planner.enumerate.deal import Deal, Space, Work, deals
from planner.estimate import estimate
from planner.rules.table import breaches
from planner.schedules.table import order
from planner.search import search
from planner.simulator import fullest_moments, peak_in_flight
from planner.specs import library, resolve
from planner.specs.recipe import Bounds, Recipe
from planner.specs.stage_layout import layers, stages, written
from tests import documents
from tests.examples import examples


def ranks_of(work: Work, space: Space, sizes: list[int]) -> tuple[float, float]:
    """The busiest rank's seconds, and the share of its room that the fullest takes."""
    seconds, held = work.ends_s.copy(), [0.0 * each[:, 0, 0] for each in space.bytes]
    at = 0
    for stage, size in enumerate(sizes):
        rank, chunk = stage % work.ranks, stage // work.ranks
        seconds[rank] += work.seconds[at : at + size].sum()
        held[rank] = held[rank] + space.bytes[rank][:, chunk, at : at + size].sum(axis=1)
        at += size
    shares = [each.max() / room for each, room in zip(held, space.room, strict=True)]
    return float(seconds.max()), float(max(shares))


def fastest(work: Work, space: Space) -> float:
    """Seconds of the busiest rank, by trying every cut; infinite where none holds."""
    count, best = len(work.seconds), math.inf
    for inner in combinations_with_replacement(range(count + 1), len(work.fewest) - 1):
        sizes = np.diff((0, *inner, count))
        if (sizes >= work.fewest).all():
            seconds, share = ranks_of(work, space, sizes.tolist())
            best = min(best, seconds if share <= 1 + 1e-9 else math.inf)
    return best


@st.composite
def questions(draw: st.DrawFn) -> tuple[Work, Space]:
    """A few layers of a few kinds, on ranks with different room."""
    ranks, v = draw(st.sampled_from([(2, 1), (3, 1), (4, 1), (2, 2), (2, 3)]))
    kinds = draw(
        st.lists(st.integers(0, 2), min_size=ranks * v, max_size=ranks * v + (3 if v < 3 else 1))
    )
    seconds = np.array([0.25, 1.0, 3.0])[kinds]
    held = 1e9 * np.array([2.0, 1.0, 0.5])[kinds]
    ends = np.zeros(ranks)
    ends[0], ends[-1] = draw(st.sampled_from([0.0, 0.5])), draw(st.sampled_from([0.0, 1.0, 4.0]))
    fewest = np.ones(ranks * v, int)
    fewest[0], fewest[-1] = draw(st.integers(0, 1)), 0
    flying = [np.arange(v, 0, -1)[None, :, None] + ranks - rank for rank in range(ranks)]
    bytes_ = tuple(np.asarray(held * (1 + 0.2 * count)) for count in flying)
    tight = draw(st.sampled_from([0.9, 1.1, 1.4, 9.0]))
    room = np.array([tight * each.max(axis=(0, 1)).sum() / ranks for each in bytes_])
    return Work(seconds, ends, fewest), Space(bytes_, room)


@examples(60)
@given(questions())
def test_no_cut_is_better_than_the_one_that_is_dealt(question: tuple[Work, Space]) -> None:
    work, space = question
    best, found = fastest(work, space), deals(work, space)
    assert bool(found) == math.isfinite(best)
    for each in found:
        assert isinstance(each, Deal) and sum(each.sizes) == len(work.seconds)
        seconds, share = ranks_of(work, space, each.sizes)
        assert seconds == pytest.approx(each.busiest_s) and share <= 1 + 1e-6
    if found:
        assert found[0].busiest_s == pytest.approx(best)
        assert work.least_s <= best * (1 + 1e-9)


@pytest.mark.parametrize(("name", "p", "m", "v"), [("1f1b", 4, 8, 1), ("interleaved", 4, 12, 3)])
def test_the_fullest_moments_hold_the_peak_of_any_weights(
    name: str, p: int, m: int, v: int
) -> None:
    sequence = order(name, p, m, v)
    weights = np.random.default_rng(1).uniform(0.1, 3.0, p * v)
    peaks = peak_in_flight(sequence, stage_weight=weights)
    for rank, moments in enumerate(fullest_moments(sequence)):
        assert (moments @ weights[rank::p]).max() == pytest.approx(peaks[rank])


@pytest.mark.parametrize(
    ("name", "pp", "v", "text", "at_least"),
    [
        ("kimi-k2", 4, 4, "Etttt|(tttt|)*14tL", 0.0),
        ("deepseek-v3", 16, 1, "Etttt|(tttt|)*14tmL", 0.0),
        ("glm4.5-air-106b-a12b", 8, 1, "Ettttt|(tttttt|)*6tttttmL", 0.05),
    ],
)
def test_the_layouts_of_bridges_recipes_are_matched(
    name: str, pp: int, v: int, text: str, at_least: float
) -> None:
    """Megatron-Bridge 0.3.1, recipes of each model; `python -m tests.bench.stages` has all."""
    words = {"hardware": "gb300-nvl72", "seq_length": 4096, "global_batch_size": 4096}
    recipe = documents.recipe(name, 1024, **words)
    theirs = replace(documents.layout(recipe, tp=2, pp=pp, v=v, ep=32), stage_layout=text)
    before, ours = estimate(recipe, theirs, exact=True), dealt(recipe, theirs)
    assert before.fits and ours is not None
    after = estimate(recipe, ours, exact=True)
    assert after.fits and after.step_s <= before.step_s * (1 - at_least) * (1 + 1e-9)


def test_memory_moves_layers_off_the_first_rank() -> None:
    """The first rank of 1F1B holds most micro-batches: with less memory it gets fewer layers."""
    recipe = documents.recipe("llama3-70b", 64)
    layout = documents.layout(recipe, tp=4, pp=8)
    roomy = dealt(recipe, layout)
    needed = estimate(recipe, layout, exact=True).memory_bytes / 2**30
    tight = dealt(recipe.model_copy(update={"max_memory_gib": 0.95 * needed}), layout)
    assert roomy is not None and tight is not None
    assert layers(tight.stage_layout)[0] < layers(roomy.stage_layout)[0]


def test_a_dealt_layout_is_whole() -> None:
    recipe = documents.recipe("deepseek-v3", 1024, hardware="gb300-nvl72")
    for pp, v in ((8, 2), (4, 4), (16, 1)):
        found = dealt(recipe, documents.layout(recipe, tp=2, pp=pp, v=v, ep=16))
        assert found is not None
        parts = stages(found.stage_layout)
        assert len(parts) == pp * v and sum(layers(found.stage_layout)) == 61
        assert parts[0].startswith("E") and parts[-1].endswith("mL")
        assert all("t" in part for part in parts[1:-1])


def test_too_few_layers_are_not_dealt() -> None:
    model = library.model("llama3-70b").model_copy(update={"num_layers": 5})
    recipe = documents.recipe(model, 32)
    assert dealt(recipe, documents.layout(recipe, pp=4, v=2)) is None


def test_layers_that_do_not_divide_are_split_unevenly() -> None:
    """61 layers: even splits reach pp 2 alone; a deeper pipeline has other ends or a layout."""
    recipe = resolve.recipe(
        api.question(model="deepseek-v3", gpus=1024, cluster="h800-sxm", pp="4..16")
    )
    best = search(recipe, top=1).plans[0].layout
    assert best.stage_layout or best.first_layers
    assert breaches(recipe, best) == ()
    fixed = api.question(
        model="deepseek-v3", gpus=1024, cluster="h800-sxm", tp=best.tp, pp=best.pp, ep=best.ep, v=1
    )
    assert all(plan.layout.v == 1 for plan in search(resolve.recipe(fixed), top=3).plans)


def test_layers_that_divide_are_left_alone_where_a_string_does_not_pay() -> None:
    plans = search(documents.recipe("llama3-70b", 32), top=5).plans
    assert not any(plan.layout.stage_layout for plan in plans)


SHARED = "attention-dense (shared-index-experts*3 attention-experts)*2 shared-index-experts*2"
"""11 layers of GLM-5.2's kinds: stages begin at layers 0, 4 and 8 alone, those with own choices."""


def few_layers_that_share() -> Recipe:
    model = library.model("glm5.2").model_copy(update={"num_layers": 11, "pattern": SHARED})
    return documents.recipe(model, 16, hardware="b200-sxm", global_batch_size=64)


@pytest.mark.parametrize(("pp", "v"), [(2, 1), (3, 1), (2, 2)])
def test_layers_that_share_lie_together_in_the_best_of_all_cuts(pp: int, v: int) -> None:
    recipe = few_layers_that_share()
    layout = documents.layout(recipe, pp=pp, v=v, ep=4, dp=4, m=16)
    assert breaches(recipe, layout), "no even split is legal"
    best = math.inf
    for inner in combinations_with_replacement(range(12), pp * v - 1):
        text = written(np.diff((0, *inner, 11)).tolist(), recipe.model.mtp_layers)
        cut = replace(layout, stage_layout=text)
        if not breaches(recipe, cut):
            assert set(inner) <= {0, 4, 8, 11}
            best = min(best, estimate(recipe, cut, exact=True).step_s)
    found = dealt(recipe, layout)
    if math.isinf(best):
        assert found is None
        return
    assert found is not None and not breaches(recipe, found)
    assert estimate(recipe, found, exact=True).step_s == pytest.approx(best)


def test_a_deal_is_offered_where_no_even_split_is_legal() -> None:
    knobs = {"pp": Bounds(low=2, high=2), "v": Bounds(low=1, high=1)}
    changes = {"gpus": 64, "global_batch_size": 128, "knobs": knobs}
    fixed = few_layers_that_share().model_copy(update=changes)
    plans = search(fixed, top=2).plans
    assert plans and plans[0].layout.stage_layout
    assert not any(breaches(fixed, plan.layout) for plan in plans)


def test_no_plan_begins_a_stage_at_keys_of_another() -> None:
    """Gemma 3n: the last 15 of 35 layers take keys and values of the layers 18 and 19."""
    recipe = documents.recipe("gemma3n-e4b", 8, global_batch_size=64)
    fixed = recipe.model_copy(update={"knobs": {"pp": Bounds(low=2, high=2)}})
    plans = search(fixed, top=5).plans
    assert plans and not any(breaches(fixed, plan.layout) for plan in plans)
