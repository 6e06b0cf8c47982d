"""What each schedule would give for a layout: beside the field's formulas, and single estimates."""

from __future__ import annotations

import pytest

from planner import api
from planner.estimate import estimate
from planner.layout import SCHEDULE_CODE, Layout
from planner.schedule_options import ScheduleOption, pays_up_to, schedule_options, verdict
from planner.specs import resolve
from planner.specs.recipe import Recipe

GPT = {"model": "gpt-18b", "cluster": "h100-sxm", "gpus": 64, "tp": 8, "seq_length": 2048}


def asked(**words: object) -> tuple[Recipe, Layout, dict[tuple[str, int], ScheduleOption]]:
    question = api.question(**GPT | words)
    recipe, layout = resolve.recipe_and_layout(question)
    options = schedule_options(recipe, layout, estimate(recipe, layout, exact=True))
    return recipe, layout, {(each.schedule, each.v): each for each in options}


def test_in_flight_and_bubble_are_those_of_the_field() -> None:
    """p 4, m 32: GPipe holds m, 1F1B p, interleaving ((v - 1) p + 2 (p - 1) + 1) / v (Narayanan et
    al. 2021, Megatron-LM's warm-up), ZB-H1 and ZBV p (Qi et al. 2023 and 2024), DualPipe p + 1 and
    its V form half a stage more than p (DeepSeek); the bubble of all but the last two is
    (p - 1) / (v m + p - 1) or less.
    """
    _, _, options = asked(pp=4, global_batch_size=64)
    held = {
        ("gpipe", 1): 32,
        ("1f1b", 1): 4,
        ("interleaved", 2): 5.5,
        ("interleaved", 5): 4.6,
        ("interleaved", 10): 4.3,
        ("zb-h1", 1): 4,
        ("zbv", 2): 4,
        ("dualpipe", 1): 5,
        ("dualpipev", 2): 4.5,
    }
    assert {key: each.in_flight for key, each in options.items()} == pytest.approx(held)
    each = options["1f1b", 1].activations_bytes / 4
    for key in (("gpipe", 1), ("interleaved", 2), ("interleaved", 5), ("interleaved", 10)):
        assert options[key].activations_bytes == pytest.approx(held[key] * each, rel=1e-6)
    for (name, v), option in options.items():
        if name in ("gpipe", "1f1b", "interleaved"):
            assert option.bubble_share == pytest.approx(3 / (32 * v + 3), rel=0.1)
    assert options["zb-h1", 1].bubble_share < options["1f1b", 1].bubble_share / 1.5


@pytest.mark.parametrize(
    "words",
    [
        {"pp": 4, "v": 5, "global_batch_size": 64},
        {"pp": 8, "v": 1, "global_batch_size": 24},
        {"pp": 4, "v": 2, "global_batch_size": 32, "framework": "torch", "tp": 1, "zero": 3},
        {"pp": 4, "global_batch_size": 64, "recompute": "full", "recompute_layers": 5},
    ],
)
def test_each_is_the_estimate_of_the_layout_with_that_schedule(words: dict[str, object]) -> None:
    """Simulated by itself, in words of the command line."""
    recipe, layout, options = asked(**words)
    for (name, v), option in options.items():
        layers = layout.recompute_layers * layout.v
        if option.refused or layers % v:
            continue
        other = asked_layout(words | {"v": v, "schedule": name, "recompute_layers": layers // v})
        alone = estimate(recipe, other, exact=True)
        assert option.step_s == pytest.approx(alone.step_s, rel=2e-4), name
        assert option.memory_bytes == pytest.approx(alone.memory_bytes, rel=5e-3), name
    [own] = [option for option in options.values() if option.own]
    assert own.schedule in SCHEDULE_CODE and own.v == layout.v


def asked_layout(words: dict[str, object]) -> Layout:
    stated = {name: value for name, value in words.items() if value}
    return resolve.recipe_and_layout(api.question(**GPT | stated))[1]


def test_what_only_other_software_runs_says_which() -> None:
    """DeepSpeed's PipelineModule is 1F1B alone (runtime/pipe/schedule.py); Megatron-LM interleaves,
    torch has ZBV and DualPipeV, sail-sg's fork ZB-H1; DualPipe is DeepSeek's own.
    """
    _, _, options = asked(framework="deepspeed", tp=1, pp=2, global_batch_size=64)
    assert [key for key, option in options.items() if option.runs] == [("1f1b", 1)]
    assert "megatron" in options["interleaved", 2].run_by
    assert "torch" in options["zbv", 2].run_by and "torch" in options["dualpipev", 2].run_by
    assert options["zb-h1", 1].run_by == ("zero-bubble",)
    assert options["dualpipe", 1].run_by == ()


def test_where_more_virtual_stages_stop_paying() -> None:
    """10 s, 9 s, 8.9 s, then 0.3% less: v 4 is the last that pays, of those that fit."""

    def ladder(*steps: tuple[int, float, bool]) -> list[ScheduleOption]:
        names = ["1f1b" if v == 1 else "interleaved" for v, _, _ in steps]
        return [
            ScheduleOption(name, v, v == 1, True, (), step_s=step_s, fits=fits)
            for name, (v, step_s, fits) in zip(names, steps, strict=True)
        ]

    options = ladder((1, 10.0, True), (2, 9.0, True), (4, 8.9, True), (8, 8.875, True))
    enough = pays_up_to(options)
    assert enough is not None and enough.v == 4
    assert verdict(options) == (
        "More virtual stages pay up to v 4 on this network: v 8 gains 0.3%."
    )
    slower = ladder((1, 10.0, True), (2, 9.0, True), (4, 9.9, True))
    assert verdict(slower).endswith("pay up to v 2 on this network: v 4 is 10.0% slower.")
    large = ladder((1, 10.0, True), (2, 10.2, True), (4, 9.0, False))
    assert verdict(large).startswith("More virtual stages do not pay on this network: v 2 is 2.0%")
    assert verdict(ladder((1, 10.0, True))) == ""


def test_what_cannot_be_says_why() -> None:
    """DeepSeek's DualPipe asserts m >= 2 p; 40 layers are no 8 x 2 even stages."""
    _, _, options = asked(pp=8, tp=1, global_batch_size=64)
    assert "m >= 2p = 16" in options["dualpipe", 1].refused
    assert "do not divide" in options["zbv", 2].refused
    assert options["zbv", 2].to_dict()["step_s"] is None


def test_answers_that_have_a_pipeline_have_them() -> None:
    """explain, and with one stage nothing."""
    answer = api.explain(**GPT, pp=4, global_batch_size=64)
    document = answer.to_dict()["schedules"]
    assert document["v_pays_up_to"] and document["says"] in str(answer)
    assert {option["schedule"] for option in document["options"]} >= {"gpipe", "1f1b", "zbv"}
    assert api.explain(**GPT, pp=1, global_batch_size=64).to_dict()["schedules"] is None
