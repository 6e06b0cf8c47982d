"""The simulated pipeline of a layout: against the closed form where that is exact, and its short
cut against the whole order.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import pipeline
from planner.estimate import closed_form, estimate, parts, stage_times
from planner.layout import SCHEDULE_CODE, Layout
from planner.simulator import simulate
from tests.documents import recipe


def interleaved(pp: int, v: int, m: int) -> Layout:
    return Layout(
        tp=8, pp=pp, v=v, m=m, sp=1, schedule=SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"]
    )


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 5]),
    st.integers(7, 40),
    st.integers(0, 3),
    st.sampled_from(["h100-sxm", "l40s-pcie"]),
)
def test_many_micro_batches_are_extrapolated_without_loss(
    pp: int, v: int, turns: int, rest: int, cluster: str
) -> None:
    """Two short runs give the makespan of the whole order (Megatron takes a remainder only without
    interleaving).
    """
    asked = recipe(hardware=cluster)
    layout = interleaved(pp, v, turns * pp + (rest % pp if v == 1 else 0))
    _, layer, ends, acts = parts(asked, layout)
    found = pipeline.simulated(asked, layout, layer, ends, acts).pipeline
    spent, transfer, blocking = stage_times(asked, layout)
    whole = simulate(
        pipeline.order(layout, spent, transfer), spent, transfer=transfer, blocking=blocking
    ).makespan
    assert layout.m * found.work.slowest_s + found.bubble_s + found.pp_comm_s == pytest.approx(
        whole, rel=2e-3
    )


@pytest.mark.parametrize(("pp", "v", "m"), [(4, 1, 16), (8, 2, 32), (4, 5, 8), (2, 1, 1)])
def test_closed_form_and_simulation_agree_on_nvlink(pp: int, v: int, m: int) -> None:
    asked = recipe(gpus=pp * 8)
    layout = interleaved(pp, v, m)
    assert float(closed_form(asked, layout).step_s) == pytest.approx(
        estimate(asked, layout, exact=True).step_s, rel=0.03
    )


def test_stages_add_up_to_the_model() -> None:
    asked = recipe("llama3-405b", gpus=128)
    layout = replace(interleaved(16, 4, 32), account_for_embedding=1, account_for_loss=1)
    stages = estimate(asked, layout, exact=True).stages
    assert [s.layers for s in stages] == [7, *[8] * 14, 7]
    assert max(s.memory_bytes for s in stages) == estimate(asked, layout, exact=True).memory_bytes
    assert [round(s.in_flight, 6) for s in stages[1:3]] == [
        (3 * 16 + 2 * 14 + 1) / 4,
        (3 * 16 + 2 * 13 + 1) / 4,
    ]


def test_zero_bubble_and_dualpipe_are_simulated_too() -> None:
    """ZB-H1 idles less than 1F1B; DualPipe keeps two copies of the parameters (DeepSeek-V3, table
    2).
    """
    asked = recipe("llama3-8b", gpus=64)
    plain = estimate(asked, interleaved(8, 1, 32), exact=True)
    h1 = estimate(
        asked, replace(interleaved(8, 1, 32), schedule=SCHEDULE_CODE["zb-h1"]), exact=True
    )
    dual = estimate(
        asked, replace(interleaved(8, 1, 32), schedule=SCHEDULE_CODE["dualpipe"]), exact=True
    )
    assert h1.time.bubble_s < plain.time.bubble_s
    assert sum(s.params for s in dual.stages) == 2 * sum(s.params for s in plain.stages)


def test_what_cannot_be_simulated_says_so() -> None:
    asked = recipe(gpus=64)
    said = estimate(asked, interleaved(8, 2, 5), exact=True)
    assert any("interleaved needs" in note for note in said.assumed)


def test_gpipe_holds_every_micro_batch_also_when_many_are_extrapolated() -> None:
    """Huang et al. 2019: activations of all m micro-batches are in flight; 1F1B holds p - rank."""
    asked = recipe("llama3-8b", gpus=64)
    gpipe = estimate(
        asked, replace(interleaved(4, 1, 256), schedule=SCHEDULE_CODE["gpipe"]), exact=True
    )
    assert [round(s.in_flight) for s in gpipe.stages] == [256] * 4
    assert [
        round(s.in_flight) for s in estimate(asked, interleaved(4, 1, 256), exact=True).stages
    ] == [4, 3, 2, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 4]),
    st.integers(1, 300),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from(["h100-sxm", "a100-80g-pcie"]),
)
def test_no_time_is_negative(pp: int, m: int, mbs: int, cluster: str) -> None:
    """Not by rounding either: a bubble of -1e-14 s is a wrong figure in JSON."""
    asked = recipe("llama3-8b", hardware=cluster, seq_length=2048)
    layout = Layout(tp=1, pp=pp, m=m, mbs=mbs)
    for said in (closed_form(asked, layout), estimate(asked, layout, exact=True)):
        assert said.time.bubble_s >= 0 and said.time.pp_comm_s >= 0 and 0 <= said.bubble_share < 1
        assert pp > 1 or said.time.bubble_s + said.time.pp_comm_s < 1e-12 * said.step_s
