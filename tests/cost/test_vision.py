"""Vision towers in front of the first stage: operations, seconds, bytes, and the words for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost.flops import model_flops, tower_flops
from planner.cost.layer.attention import attention_times
from planner.cost.layer.vision import as_layout, as_recipe, tower_time
from planner.cost.params.trained import trained_total
from planner.cost.params.vision import tower_params
from planner.errors import InputError
from planner.estimate import closed_form, estimate, kinds_of_layers, tower_of_first_stage
from planner.layout import Layout
from planner.specs.model import Vision
from planner.specs.recipe import Recipe
from planner.specs.switches.table import under
from planner.specs.vision import vision
from planner.specs.workload import Lora
from tests import documents

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "vision_flops.jsonl").read_text().splitlines()
]
# Classes of Transformers 5.24 with a few layers, run on one image under torch's counter
# (tests/bench/oracle_vision.py): parameters of tower and projector, operations each way.
TOWER = 576_388_336  # of Qwen3-VL-8B, as Transformers builds it


def question(name: str = "qwen3-vl-8b", tower: Vision | None = None, **changes: Any) -> Recipe:
    recipe = documents.recipe(
        name, 8, **{"seq_length": 8192, "global_batch_size": 32, "image_size": 1024, **changes}
    )
    if tower is None:
        return recipe
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"vision": tower})})


@pytest.mark.parametrize("row", ROWS, ids=[row["config"]["model_type"] for row in ROWS])
def test_operations_and_parameters_are_those_of_the_class(row: dict[str, Any]) -> None:
    tower = Vision(**(vision(row["config"], "config.json") or {}))
    assert tower_params(tower) == row["parameters"]
    words = {"images_per_sample": 3, "image_size": row["image_size"], "global_batch_size": 2}
    trained, frozen = (question(tower=tower, **words, frozen=x) for x in ((), ("vision",)))
    each = [tower_flops(one, full_attention=False) / 6 for one in (trained, frozen)]
    assert each[1] == pytest.approx(row["forward"], rel=3e-3)
    assert each[0] == pytest.approx(row["forward"] + row["backward"], rel=3e-3)


def test_operations_by_the_count_of_megatron_bridge() -> None:
    """Its formula for Qwen3-VL: full attention both ways, m = 4 h, four mergers to 4,096; 4,096
    patches of an image. It leaves out the first product, of 1,536 values a patch.
    """
    h, f, p, m = 1152, 4304, 4096, 4608
    layers = 27 * ((8 * h * h + 4 * h * f) * p + 4 * h * p * p)
    mergers = 4 * p / 4 * (2 * m * m + 2 * m * 4096)
    one = question(images_per_sample=1)
    whole = model_flops(one, full_attention=False) - model_flops(question(), full_attention=False)
    assert whole / 32 == pytest.approx(3 * (layers + mergers) + 2 * 2 * 1536 * h * p, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "size", "patches", "tokens"),
    [
        ("qwen3-vl-8b", 1024, 4096, 1024),
        ("qwen3-vl-8b", 500, 900, 225),  # 15 x 15 tokens of 32 pixels
        ("qwen3-vl-8b", 1, 4, 1),
        ("gemma4-31b", 0, 2520, 280),
        ("mistral-small-3-24b", 1540, 12_100, 3025),
    ],
)
def test_tokens_of_an_image(name: str, size: int, patches: int, tokens: int) -> None:
    tower = question(name).model.vision
    assert tower and (tower.patches(size), tower.tokens(size)) == (patches, tokens)


def test_attention_sees_both_ways_and_windows() -> None:
    """A causal core of as many tokens does half of it; a window of 64 of 1,024 patches sees them
    and half a tile."""
    tower = Vision(**(vision(ROWS[0]["config"], "config.json") or {}))
    one = question(tower=tower, images_per_sample=1, image_size=448)
    alone = as_recipe(one, tower)
    near, full = (attention_times(kind, Layout())[0] for kind in alone.kinds)
    plain = alone.model.model_copy(update={"window": None, "kinds": (), "pattern": ""})
    causal = attention_times(alone.model_copy(update={"model": plain}), Layout())[0]
    assert full / causal == pytest.approx((1024 + 64) / (512 + 64))
    assert near / causal == pytest.approx((64 + 64) / (512 + 64))


def test_the_first_stage_alone_has_it() -> None:
    of = documents.layout(question(), pp=4, tp=2)
    text, seen = (estimate(question(**x), of, exact=True) for x in ({}, {"images_per_sample": 2}))
    [tower] = tower_of_first_stage(question(images_per_sample=2), of)
    first = seen.stages[0]
    assert first.params - text.stages[0].params == TOWER == tower.params
    assert first.forward_s - text.stages[0].forward_s == pytest.approx(tower.forward_s)
    assert first.backward_s - text.stages[0].backward_s == pytest.approx(tower.backward_s)
    assert [x.forward_s for x in seen.stages[1:]] == [x.forward_s for x in text.stages[1:]]
    assert [x.memory_bytes for x in seen.stages[1:]] == [x.memory_bytes for x in text.stages[1:]]
    assert kinds_of_layers(question(images_per_sample=2), of)[-1] == tower


def test_an_image_takes_the_time_of_its_products() -> None:
    """27 layers' products at the peak of an H100 take less, and not twice as much with its
    attention, at heads of 72."""
    time = tower_time(question(images_per_sample=1), Layout())
    products = 27 * (8 * 1152**2 + 4 * 1152 * 4304) * 4096 + 2 * 160_496_896 * 1024
    assert 989e12 * float(time.gemm_forward_s) / products == pytest.approx(1.6, abs=0.3)
    assert float(time.backward_s) == pytest.approx(2.2 * float(time.forward_s), rel=0.15)


def test_what_a_tower_keeps_by_hand() -> None:
    """A layer with LayerNorm and without gates, in bytes a patch: norms 8 h, q, k, v and output 8
    h, MLP 4 f; softmax's sums 4 a head. Fused activation keeps no more."""
    recipe, h, f = question(images_per_sample=2), 1152, 4304
    held = float(tower_of_first_stage(recipe, Layout())[0].kept_bytes)
    assert held == pytest.approx(27 * 2 * 4096 * (16 * h + 4 * f + 4 * 16), rel=0.01)
    assert tower_of_first_stage(recipe, Layout(tp=2, sp=1, cp=2))[0].kept_bytes == held
    # Megatron-LM recomputes Hugging Face's class in no case, torch's wrappers do
    assert tower_of_first_stage(recipe, Layout(recompute=2))[0].kept_bytes == held
    torch = question(images_per_sample=2, stack="torch-fsdp")
    again = tower_of_first_stage(torch, Layout(recompute=2))[0].kept_bytes
    assert again == pytest.approx(27 * 2 * 4096 * 2 * h)


def test_states_of_a_tower_without_work() -> None:
    """6 bytes of weight and gradient, 12 of states; frozen 2 bytes."""
    of = Layout(dp=8, m=4, zero=0)
    text, idle, frozen = (
        closed_form(question(**x), of)
        for x in ({}, {"images_per_sample": 0}, {"images_per_sample": 0, "frozen": ("vision",)})
    )

    def states(one: Any) -> float:
        memory = one.memory
        return float(memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes)

    assert states(idle) - states(text) == pytest.approx(18 * TOWER)
    assert states(frozen) - states(text) == pytest.approx(2 * TOWER)
    assert idle.memory.activations_bytes == text.memory.activations_bytes
    assert idle.time.gemm_s == text.time.gemm_s
    assert trained_total(question(images_per_sample=0)) - trained_total(question()) == TOWER


def test_frozen_and_adapters_go_forward_alone() -> None:
    for words in ({"frozen": ("vision",)}, {"lora": Lora(rank=16)}):
        recipe = question(images_per_sample=2, **words)
        time = tower_time(recipe, Layout())
        assert time.forward_s == tower_time(question(images_per_sample=2), Layout()).forward_s
        assert time.backward_s == 0.0
        assert tower_of_first_stage(recipe, Layout())[0].kept_bytes == 0.0


def test_columns_are_the_layouts_one_by_one() -> None:
    recipe = question(images_per_sample=2)
    each = [Layout(tp=t, pp=p, dp=8 // t // p, m=4, mbs=b) for t, p, b in ((1, 1, 1), (2, 2, 2))]
    names = ("tp", "pp", "dp", "m", "mbs")
    columns: Any = Layout(**{n: np.array([getattr(x, n) for x in each]) for n in names})
    many = closed_form(recipe, columns)
    step_s, memory_bytes = np.asarray(many.step_s), np.asarray(many.memory_bytes)
    for row, one in enumerate(each):
        alone = closed_form(recipe, one)
        assert step_s[row] == pytest.approx(float(alone.step_s), rel=1e-12)
        assert memory_bytes[row] == pytest.approx(float(alone.memory_bytes), rel=1e-12)
    exact = estimate(recipe, each[0], exact=True)
    assert exact.step_s == pytest.approx(float(closed_form(recipe, each[0]).step_s))


def test_packed_samples_bring_their_images() -> None:
    whole = question(images_per_sample=8)
    packed = question(images_per_sample=2, packing=True, mean_length=2048)
    assert as_layout(packed, Layout()).mbs == as_layout(whole, Layout()).mbs == 8


def test_text_alone_is_as_without_a_tower() -> None:
    recipe = question()
    bare = recipe.model_copy(update={"model": recipe.model.model_copy(update={"vision": None})})
    of = documents.layout(recipe, pp=2)
    assert estimate(recipe, of, exact=True) == estimate(bare, of, exact=True)


def test_graphs_leave_the_launches_of_the_tower() -> None:
    small = question(images_per_sample=1, image_size=64)
    plain, graphed = (
        tower_time(under(small, {"cuda_graph": value}), Layout()) for value in ("none", "layers")
    )
    assert plain == graphed and float(plain.launch_forward_s) > 0


ASKED = {"model": "qwen3-vl-8b", "gpus": 8, "cluster": "h100-sxm", "tp": 1, "pp": 1, "mbs": 1}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"model": "llama3-8b", "images_per_sample": 1}, "llama3-8b has none; leave it out"),
        ({"image_size": 448}, "image_size must go with images_per_sample"),
        ({"images_per_sample": 9}, "9 images of 1,024 tokens in 8,192; try --images-per-sample 8"),
        ({"images_per_sample": -1}, "images_per_sample must be"),
        (
            {"model": "gemma4-31b", "images_per_sample": 1, "image_size": 64},
            "must be left out for gemma4-31b, whose tower sees 2,520 patches of every image",
        ),
        ({"frozen": ["vision"]}, "frozen vision must go with a vision tower"),
        (
            {
                "images_per_sample": 1,
                "frozen": ["embedding", "attention", "mlp", "norms", "head", "vision"],
            },
            "something must be trained",
        ),
    ],
)
def test_words_that_contradict_one_another(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        api.explain(api.question(**{**ASKED, **words}))


def test_no_file_that_is_written_pretends_to_have_a_tower(tmp_path: Path) -> None:
    """Without a script of one's own nothing is written but the plan, and the answer says why."""
    asked = api.question(**{**ASKED, "tp": 2}, images_per_sample=1)
    plan = api.recommend(asked, top=1, out=tmp_path)
    assert [Path(name).name for name in plan.files] == ["plan.yaml"]
    assert "must build the vision tower of qwen3-vl-8b" in plan.refused
