"""From measured layers to a plan's step: exact where the times are the cost model's own, near a
real pipeline where layers sleep.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import estimate
from planner.cost.layer.embedding_and_head import ends_time
from planner.cost.layer.kinds import layer_time
from planner.layout import Layout
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.tune.runners import compose, measured_layers, proxy
from planner.tune.runners.compose import Passes
from planner.tune.runners.torch_runner import measurement, request
from tests.tune import tiny

pytestmark = pytest.mark.process


SLEEP = 0.045, 0.09
LAYERS, M = 8, 8
WITHIN = 0.05
ATTEMPTS = 5
PIPELINES = {
    "1f1b": {"pp": 4, "mbs": 1},
    "interleaved-torch": {"pp": 4, "mbs": 1, "v": 2, "schedule": "interleaved-torch"},
}


def question(model="llama3-8b", gpus=64):
    return Recipe(
        model=library.model(model),
        hardware=library.hardware("h100-sxm"),
        software=library.stack("megatron"),
        gpus=gpus,
        seq_length=4096,
        global_batch_size=128,
    )


def analytic(recipe, layout):
    """What a perfect measurement of the cost model's own times would give."""
    found = {proxy.kind(each.model): layer_time(each, layout) for each in recipe.kinds}
    ends = ends_time(recipe, layout)
    layers = {
        kind: Passes(float(one.forward_s), float(one.backward_s)) for kind, one in found.items()
    }
    pairs = (
        (ends.embedding_forward_s, ends.embedding_backward_s),
        (ends.head_forward_s, ends.head_backward_s),
    )
    return layers, tuple(Passes(float(a), float(b)) for a, b in pairs)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tp=2, pp=4, dp=8, mbs=1, m=16, sp=1),
        Layout(tp=4, pp=4, v=2, dp=4, mbs=1, m=32, sp=1, schedule=3, recompute=2),
        Layout(tp=1, pp=8, dp=8, mbs=2, m=8, schedule=6),
    ],
)
def test_the_cost_models_own_times_give_its_own_step(layout):
    recipe = question()
    layers, ends = analytic(recipe, layout)
    step_s, stages = compose.step_of(
        recipe, layout, layers, ends, tp_measured=True, recomputed=True
    )
    expected = estimate.estimate(recipe, layout, exact=True)
    assert step_s == pytest.approx(expected.step_s, rel=1e-9)
    assert [one["forward_s"] for one in stages] == pytest.approx(
        [one.forward_s for one in expected.stages]
    )


def test_layers_of_two_kinds():
    recipe, layout = question("mixtral-8x7b"), Layout(tp=2, pp=4, dp=8, ep=4, mbs=1, m=16, sp=1)
    layers, ends = analytic(recipe, layout)
    [each] = recipe.kinds
    known = layer_time(each, layout)
    forward_s, backward_s = layers["experts"]
    layers = {
        "experts": Passes(
            forward_s - float(known.ep_forward_s), backward_s - float(known.ep_backward_s)
        )
    }
    step_s, _ = compose.step_of(recipe, layout, layers, ends, tp_measured=True, recomputed=True)
    assert step_s == pytest.approx(estimate.estimate(recipe, layout, exact=True).step_s, rel=1e-9)


def test_a_lone_device_keeps_the_tensor_parallel_communication_of_the_cost_model():
    recipe, layout = question(), Layout(tp=8, pp=2, dp=4, mbs=1, m=32, sp=1)
    layers, ends = analytic(recipe, layout)
    known = layer_time(recipe, layout)
    bare = {
        "dense": Passes(
            layers["dense"].forward_s - float(known.tp_forward_s),
            layers["dense"].backward_s - float(known.tp_backward_s),
        )
    }
    step_s, _ = compose.step_of(recipe, layout, bare, ends, tp_measured=False, recomputed=True)
    assert step_s == pytest.approx(estimate.estimate(recipe, layout, exact=True).step_s, rel=1e-9)


def test_a_layer_is_the_difference_of_two_depths():
    recipe = question()
    timed = {
        "dense-1": Passes(5.0, 9.0),
        "dense-3": Passes(9.0, 17.0),
        "embedding": Passes(5.5, 9.25),
        "head": Passes(7.0, 13.0),
    }
    assert compose.layers_of(recipe, timed) == {"dense": Passes(2.0, 4.0)}
    assert compose.ends_of(recipe, timed) == (Passes(0.5, 0.25), Passes(2.0, 4.0))


def test_measured_layers_lie_beside_predicted_ones():
    recipe, layout = question("mixtral-8x7b"), Layout(tp=2, pp=4, dp=8, ep=4, mbs=1, m=16, sp=1)
    stacks = [
        ("experts-1", 3.0, 5.0, 100.0),
        ("experts-3", 7.0, 13.0, 500.0),
        ("embedding", 3.5, 5.5, 1.0),
        ("head", 4.0, 7.0, 1.0),
    ]
    one, embedding, head = measurement(result(recipe, layout, 8, stacks)).layers
    assert (one["name"], one["forward_s"], one["backward_s"], one["kept_bytes"]) == (
        "experts",
        2.0,
        4.0,
        200.0,
    )
    assert (embedding["forward_s"], head["backward_s"]) == (0.5, 2.0)
    [each] = recipe.kinds
    known = layer_time(each, layout)
    assert one["predicted_forward_s"] == pytest.approx(float(known.forward_s - known.ep_forward_s))
    assert one["predicted_kept_bytes"] == pytest.approx(_kept(recipe, layout))


@pytest.mark.parametrize(
    ("layout", "in_flight"),
    [
        (Layout(tp=2, pp=4, dp=8, mbs=1, m=16, sp=1), 4),  # on the first rank under 1F1B
        (
            Layout(tp=2, pp=4, dp=8, mbs=1, m=16, sp=1, recompute=2),
            1,
        ),  # with so little kept the last rank and its logits are the most
    ],
)
def test_memory_with_measured_activations(layout, in_flight):
    """What the cost model itself keeps gives its own memory; a byte more a layer is held by every
    micro-batch in flight.
    """
    recipe = question()
    own = (
        _kept(recipe, layout)
        if layout.recompute == 0
        else float(estimate.parts(recipe, layout)[3].kinds[0].input_bytes)
    )
    expected = estimate.estimate(recipe, layout, exact=True)
    found = measured_layers.memory_bytes(recipe, layout, {"dense": own})
    assert found == pytest.approx(expected.memory.allocated_bytes)
    layers = recipe.model.num_layers / layout.pp
    assert measured_layers.memory_bytes(
        recipe, layout, {"dense": own + 1e6}
    ) - found == pytest.approx(in_flight * layers * 1e6, rel=1e-6)


def test_where_the_device_does_not_tell_memory_is_not_made_up():
    recipe, layout = question(), Layout(tp=2, pp=4, dp=8, mbs=1, m=16, sp=1)
    pieces = [
        ("dense-1", 3.0, 5.0, None),
        ("dense-3", 7.0, 13.0, None),
        ("embedding", 3.5, 5.5, None),
        ("head", 4.0, 7.0, None),
    ]
    found = measurement(result(recipe, layout, 8, pieces))
    assert found.memory_bytes is None and "kept_bytes" not in found.layers[0]


def result(recipe, layout, devices, pieces):
    """As the worker writes it."""
    names = ("name", "forward_s", "backward_s", "kept_bytes")
    rows = [
        dict(zip(names, (name, [forward], [backward], held), strict=True))
        for name, forward, backward, held in pieces
    ]
    rest = {
        "steps_s": [1.0],
        "memory_bytes": 1.0,
        "memory_kind": "allocated",
        "device": "test",
        "versions": {},
    }
    return {"request": request(recipe, layout, devices, 1, 1), "pieces": rows, **rest}


def _kept(recipe, layout):
    return float(estimate.parts(recipe, layout)[3].kinds[0].layer_bytes)


def sleepy(folder):
    """The composed and the real step of each pipeline whose layers sleep, from one device and from
    four.
    """
    recipe = tiny.recipe(4, num_layers=LAYERS)
    recipe = recipe.model_copy(
        update={"software": recipe.software.with_figures({"launch.step_overhead_us": 0.0})}
    )
    layouts = {name: tiny.layout(**knobs) for name, knobs in PIPELINES.items()}
    assert {one.m for one in layouts.values()} == {M}
    first = next(iter(layouts.values()))
    alone = [request(recipe, first, 1, 2, 1)]
    together = [
        request(recipe, one, 4, 2, 0) | {"profile": False} for one in layouts.values()
    ]  # the quickest step counts, which the first is not
    (parts,), runs = tiny.answers([(alone, 1), (together, 4)], folder, SLEEP)
    found = {}
    for (name, one), real in zip(layouts.items(), runs, strict=True):
        asked = parts["request"] | {"layout": one.named()}
        found[name] = measurement(parts | {"request": asked}), measurement(real)
    return found


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory):
    """Of some attempts on what may be a busy machine, the one where the farthest pipeline is
    nearest.
    """
    best = None
    for _ in range(ATTEMPTS):
        found = sleepy(tmp_path_factory.mktemp("sleepy"))
        far = max(abs(composed.step_s / min(real.steps_s) - 1) for composed, real in found.values())
        best = min(best or (far, found), (far, found), key=lambda one: one[0])
        if far < WITHIN:
            break
    return best[1]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_composed_pipeline_is_near_the_real_one(pipelines, name):
    composed, real = pipelines[name]
    assert composed.composed and not real.composed
    assert "1 device for a plan of 4" in composed.proxy and not real.proxy
    assert composed.step_s == pytest.approx(min(real.steps_s), rel=WITHIN)
    layers = (M + 3 / PIPELINES[name].get("v", 1)) * LAYERS / 4 * sum(SLEEP)
    assert (
        layers < composed.step_s < layers * 1.15
    )  # the sleeping alone, in [narayanan2021]'s closed form
    # how the step divides into forward and backward; a busy machine wakes sleepers late
    assert [one["forward_s"] for one in composed.stages] == pytest.approx(
        [LAYERS / 4 * SLEEP[0]] * 4, rel=0.4
    )


def test_fewer_devices_than_a_plan_needs_are_said():
    recipe, layout = question(), Layout(tp=4, pp=2, dp=8, mbs=1, m=16, sp=1)
    assert proxy.decide(recipe, layout, 64).words == ""
    assert "on 4 of them at tp=4" in proxy.decide(recipe, layout, 8).words
    assert "the share of one of 4 tensor-parallel ranks" in proxy.decide(recipe, layout, 2).words
    assert request(recipe, layout, 8, 1, 1)["ranks"] == 4
    assert request(recipe, replace(layout, pp=1, dp=16), 1, 1, 1)["share"] == 4
