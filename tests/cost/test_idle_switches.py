"""A switch that is not written or does not act in a layout is not counted there, and a batch of
layouts is what each layout is alone.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np
import pytest

from planner.estimate import closed_form
from planner.layout import Layout, Layouts
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switch, Value
from planner.specs.switches.table import BY_FRAMEWORK, settings_of, with_switches
from tests import documents


def grid(question: Recipe) -> list[Layout]:
    """Layouts of 64 GPUs: sp, sharding, experts, rings and exchanges, pipelines, one after another
    and some together.
    """
    experts: list[dict[str, Any]] = [{}]
    if question.model.moe:
        experts = [{"ep": 1, "etp": 2}, {"ep": 8, "etp": 1}, {"ep": 1, "etp": 1}]
    rings: list[dict[str, Any]] = [{}, {"cp": 4, "cp_a2a": 1}, {"cp": 4, "cp_a2a": 2}]
    layouts = []
    for sp, zero, more, ring in product((0, 1), (0, 1, 2, 3), experts, rings):
        layouts.append(documents.layout(question, tp=2, sp=sp, zero=zero, **more, **ring))
    for more in experts:
        layouts.append(documents.layout(question, zero=1, **more | {"etp": 1}))
        layouts.append(documents.layout(question, tp=2, pp=4, zero=1, **more))
        layouts.append(documents.layout(question, tp=2, pp=4, v=2, zero=1, **more))
    return layouts


def columns(layouts: list[Layout]) -> Layouts:
    names = [field.name for field in fields(Layout) if field.name != "stage_layout"]
    return Layout(**{n: np.array([getattr(each, n) for each in layouts]) for n in names})


def other_values(switch: Switch, now: Value) -> list[Value]:
    if switch.values:
        return [value for value in switch.values if value != now]
    if switch.words:
        return [switch.words[0]]
    return [0.5] if switch.share else [max(2, switch.lowest)]


def figures(recipe: Recipe, layouts: Layouts) -> tuple[Any, Any]:
    said = closed_form(recipe, layouts)
    return said.step_s, said.memory.allocated_bytes


def idle(switch: Switch, recipe: Recipe, layouts: Layouts) -> Any:
    there = switch.exists(recipe, layouts) & switch.acts(recipe, layouts)
    return ~np.broadcast_to(there, len(layouts))


def others_grid(question: Recipe) -> list[Layout]:
    """Layouts of DeepSpeed and torch that their rules allow: pipelines without sharded gradients,
    exchanges of sequences with sharding.
    """
    layouts = []
    for tp, pp, cp, zero in product((1, 2), (1, 4), (1, 4), (0, 1, 2, 3)):
        if (pp == 1 or zero <= 1) and (cp == 1 or (zero and pp == 1)):
            layouts.append(documents.layout(question, tp=tp, pp=pp, cp=cp, zero=zero))
    if question.model.moe:
        layouts += [documents.layout(question, ep=8, zero=zero) for zero in (1, 2, 3)]
    return layouts


@pytest.mark.parametrize("model", ["llama3-8b", "qwen2-57b-a14b"])
@pytest.mark.parametrize("framework", BY_FRAMEWORK)
def test_a_switch_that_is_idle_costs_nothing(framework: str, model: str) -> None:
    here = documents.recipe(model, 64)
    here = here.model_copy(update={"software": library.stack(framework)})
    each = grid(here) if framework == "megatron" else others_grid(here)
    layouts, now = columns(each), settings_of(here.software)
    step_s, memory = figures(here, layouts)
    for name, switch in BY_FRAMEWORK[framework].items():
        for value in other_values(switch, now[name]):
            changed = with_switches(here.software, {name: value})
            there = here.model_copy(update={"software": changed})
            rows = idle(switch, here, layouts) & idle(switch, there, layouts)
            if not rows.any():
                continue
            after = figures(there, layouts[rows])
            assert after[0] == pytest.approx(step_s[rows], rel=1e-9), (name, value)
            assert after[1] == pytest.approx(memory[rows], rel=1e-9), (name, value)


@pytest.mark.parametrize("model", ["llama3-8b", "qwen2-57b-a14b"])
def test_a_mixed_batch_is_each_layout_alone(model: str) -> None:
    here = documents.recipe(model, 64)
    layouts = grid(here)[::5]
    step_s, memory = figures(here, columns(layouts))
    alone = [figures(here, each) for each in layouts]
    assert step_s == pytest.approx([float(one[0]) for one in alone], rel=1e-9)
    assert memory == pytest.approx([float(one[1]) for one in alone], rel=1e-9)
