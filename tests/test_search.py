"""The search: what it proposes, what it refuses, what it says when nothing fits."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.enumerate import layouts
from planner.estimate import closed_form
from planner.layout import SCHEDULE_CODE, SCHEDULES
from planner.rules.table import breaches
from planner.search import fitting, min_gpus, search
from planner.specs.recipe import Bounds
from tests.documents import recipe

pytestmark = pytest.mark.slow


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


def test_best_plan_is_the_best_of_a_brute_force_over_all_layouts() -> None:
    """Every enumerated layout estimated one by one: none that is legal and fits is faster than the
    best plan by more than a tie.
    """
    asked = recipe("llama3-8b", 16, global_batch_size=64)
    every = layouts(asked)
    rows = [every[int(i)] for i in np.arange(0, len(every), 7)]
    legal = [row for row in rows if not breaches(asked, row)]
    fitting_s = [
        float(said.step_s) for said in (closed_form(asked, row) for row in legal) if said.fits
    ]
    assert search(asked).plans[0].estimate.step_s <= min(fitting_s) * 1.01


def test_counts_add_up() -> None:
    found = search(recipe("llama3-70b", 64))
    assert found.enumerated == found.legal + sum(found.removed.values())
    assert found.estimated == found.legal >= found.fit > 0


def test_plans_are_different_splits_in_order_of_time() -> None:
    plans = search(recipe("llama3-70b", 64)).plans
    splits = [(p.layout.tp, p.layout.pp, p.layout.dp, p.layout.cp, p.layout.mbs) for p in plans]
    assert len(set(splits)) == len(plans) == 5
    assert [p.estimate.step_s for p in plans] == sorted(p.estimate.step_s for p in plans)


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
    ends).
    """
    asked = recipe(
        "llama3-405b", 512, knobs={"pp": Bounds(low=16, high=16), "tp": Bounds(low=8, high=8)}
    )
    plans = search(asked).plans
    assert plans and all(
        (p.layout.account_for_embedding, p.layout.account_for_loss) == (1, 1) for p in plans
    )


def test_nothing_fits_answers_with_changes_that_do() -> None:
    asked = recipe("llama3-405b", 8)
    found = search(asked)
    assert not found.plans and found.nearest
    assert found.min_gpus == min_gpus(asked)
    for change in found.nearest:
        assert change.estimate.fits
    fewest = found.min_gpus or 0
    assert fitting(asked, fewest) is not None and fitting(asked, fewest - 8) is None


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


def test_interleaving_is_a_schedule_of_its_own_code() -> None:
    every = layouts(recipe("llama3-8b", 16))
    interleaved = every.schedule == SCHEDULE_CODE["interleaved"]
    assert (interleaved == (every.v > 1)).all()
    assert {f.name for f in fields(every) if isinstance(getattr(every, f.name), np.ndarray)} >= {
        "tp",
        "pp",
        "dp",
        "mbs",
        "m",
        "v",
    }


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
    assert "of the fp16 peak" in api.recommend(asked, top=1).search.plans[0].why[0]
