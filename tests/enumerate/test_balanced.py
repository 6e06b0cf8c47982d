"""Stage layouts dealt layer by layer: as even as brute force, whole, and better than what the even
splits offer.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.enumerate.balanced import contiguous, stage_layout
from planner.rules.table import breaches
from planner.search import search
from planner.specs import library, resolve
from planner.specs.stage_layout import layers, stages
from tests import documents

MODEL = library.model("deepseek-v3")


def rank_loads(text: str, pp: int, v: int, embedding: float, head: float) -> list[float]:
    counts = layers(text)
    found = [float(sum(counts[chunk * pp + rank] for chunk in range(v))) for rank in range(pp)]
    found[0] += embedding
    found[-1] += head
    return found


@given(
    pp=st.integers(2, 5),
    layers_=st.integers(5, 14),
    head=st.floats(0, 3),
    embedding=st.floats(0, 1),
)
def test_the_busiest_rank_is_as_idle_as_any_deal_leaves_it(
    pp: int, layers_: int, head: float, embedding: float
) -> None:
    """Every way to cut so many layers into pp runs, tried."""
    model = MODEL.model_copy(update={"num_layers": layers_, "mtp_layers": 0})
    text = stage_layout(model, pp, 1, embedding, head)
    if not text:
        return
    ends = [embedding, *[0.0] * (pp - 2), head]
    best = min(
        max(
            end - start + extra
            for start, end, extra in zip((0, *cut), (*cut, layers_), ends, strict=True)
        )
        for cut in combinations_with_replacement(range(layers_ + 1), pp - 1)
    )
    assert max(rank_loads(text, pp, 1, embedding, head)) == pytest.approx(best)


@given(pp=st.integers(2, 16), v=st.integers(1, 4), head=st.floats(0, 5))
def test_a_layout_is_whole(pp: int, v: int, head: float) -> None:
    text = stage_layout(MODEL, pp, v, 0.1, head)
    if not text:
        return
    parts = stages(text)
    assert len(parts) == pp * v and sum(layers(text)) == 61
    assert (
        parts[0].startswith("E")
        and parts[-1].endswith("mL")
        and all("t" in part for part in parts[:-1])
    )
    loads = rank_loads(text, pp, v, 0.1, head)
    assert max(loads) - min(loads[1:-1], default=max(loads)) <= 1 + max(head, 1)


def test_a_stage_without_layers_is_no_layout() -> None:
    assert stage_layout(MODEL.model_copy(update={"num_layers": 5}), 4, 2, 0.1, 1.0) == ""


def test_layers_that_do_not_divide_get_virtual_stages() -> None:
    """61 layers: even splits reach pp 2 alone; the best plan on 1,024 GPUs interleaves a deeper
    pipeline, and may be saved and read.
    """
    recipe = resolve.recipe(
        api.question(model="deepseek-v3", gpus=1024, cluster="h800-sxm", pp="4..16")
    )
    best = search(recipe, top=1).plans[0].layout
    assert best.stage_layout and best.v > 1 and breaches(recipe, best) == ()
    fixed = api.question(
        model="deepseek-v3", gpus=1024, cluster="h800-sxm", tp=best.tp, pp=best.pp, ep=best.ep, v=1
    )
    assert all(plan.layout.v == 1 for plan in search(resolve.recipe(fixed), top=3).plans)


def test_layers_that_divide_are_left_alone() -> None:
    plans = search(documents.recipe("llama3-70b", 32), top=5).plans
    assert not any(plan.layout.stage_layout for plan in plans)


@given(
    weights=st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=5, max_size=10),
    stages_=st.integers(1, 5),
    embedding=st.sampled_from([0.0, 0.5, 2.0]),
    head=st.sampled_from([0.0, 1.0, 4.0]),
)
def test_kinds_of_layers_are_dealt_as_well_as_by_brute_force(
    weights: list[float], stages_: int, embedding: float, head: float
) -> None:
    def busiest(counts: list[int]) -> float:
        ends = [sum(counts[: stage + 1]) for stage in range(stages_)]
        loads = [sum(weights[end - n : end]) for end, n in zip(ends, counts, strict=True)]
        loads[0] += embedding
        loads[-1] += head
        return max(loads)

    cuts = combinations_with_replacement(range(len(weights) + 1), stages_ - 1)
    ways = ([b - a for a, b in pairwise((0, *cut, len(weights)))] for cut in cuts)
    found = contiguous(weights, stages_, embedding, head)
    assert sum(found) == len(weights)
    assert busiest(found) == min(busiest(way) for way in ways if 0 not in way[:-1])
