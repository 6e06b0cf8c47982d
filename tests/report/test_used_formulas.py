"""explain prints the formulas that made the numbers, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import api
from planner.report.formulas import formulas_of
from planner.report.text.explain import used_formulas


def names(model: str, pp: int) -> tuple[set[str], str]:
    question = api.question(model=model, cluster="h100-sxm", gpus=16, pp=pp, tp=2, mbs=1)
    formulas, note = used_formulas(api.explain(question))
    return {f"{formula.room}.{formula.name}" for formula in formulas}, note


def test_a_simulated_dense_model_has_no_closed_forms_adapters_or_experts() -> None:
    used, note = names("llama3-8b", 2)
    assert "simulate" in note and "1f1b" in note
    assert {"cost.pipeline.simulated", "cost.layer.attention.attention_times"} <= used
    forbidden = (
        "layer.lora",
        "memory.lora",
        "adapter",
        "expert",
        "makespan",
        "unequal",
        "exposed",
        "blocking",
        "idle",
    )
    assert not [name for name in used if any(word in name for word in forbidden)]


def test_experts_of_a_mixture_of_experts() -> None:
    used, _ = names("mixtral-8x7b", 1)
    assert any("expert" in name for name in used)


def test_closed_forms_where_nothing_was_simulated() -> None:
    from planner.estimate import closed_form

    question = api.question(model="llama3-8b", cluster="h100-sxm", gpus=16, pp=2, tp=2, mbs=1)
    answer = api.explain(question)
    layout = replace(answer.layout, m=8)
    formulas, simulated = formulas_of(lambda: closed_form(answer.recipe, layout))
    used = {formula.name for formula in formulas}
    assert not simulated
    assert {"one_f_one_b", "blocking_transfer", "peak_in_flight"} <= used


def test_a_profiler_that_runs_is_left_in_place() -> None:
    import sys

    def watch(*_: object) -> None: ...

    sys.setprofile(watch)
    try:
        with pytest.raises(ZeroDivisionError):
            formulas_of(lambda: 1 / 0)
        assert sys.getprofile() is watch
    finally:
        sys.setprofile(None)
