"""What Gemma 3n has beside attention and MLP, by hand."""

from __future__ import annotations

import pytest

from planner.cost.layer.streams import between_stages, streams
from planner.cost.memory.activations import kept, layer_parts
from planner.cost.params.layer import embedding_params, head_params, layer_params, total_params
from planner.cost.step.step import tensor_bytes
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.layers import counts, kinds
from planner.specs.recipe import Recipe
from tests import documents

MODEL = library.model("gemma3n-e4b")


def recipe(gpus: int = 16) -> Recipe:
    return documents.recipe(
        MODEL, gpus, software="torch", framework_version="2.13", seq_length=4096
    )


def test_stages_hold_the_whole_model() -> None:
    """Layers, the ends and what makes and joins streams are all parameters: 262,400 rows need no
    padding, and its table is tied.
    """
    layers = sum(
        count * layer_params(kind)
        for count, kind in zip(counts(MODEL), kinds(MODEL).values(), strict=True)
    )
    ends = embedding_params(MODEL) + head_params(MODEL, Layout())
    assert layers + ends == total_params(MODEL) == 6_835_235_568
    table, joined = 262_144 * 35 * 256, 3 * 2048 * 2048
    assert embedding_params(MODEL) == 262_400 * 2048 + table + 2048 * 35 * 256 + 256 + joined


def test_all_streams_travel_and_are_kept() -> None:
    """Four streams of 2,048 and 35 inputs of 256; of a recomputed layer four streams are kept."""
    asked, layout = recipe(), Layout(dp=8, pp=2)
    assert between_stages(MODEL) == 4 * 2048 + 35 * 256
    assert tensor_bytes(asked, layout) == 4096 * 2 * 17_152
    one = asked.kinds[0]
    assert kept(one, layout).input_bytes == 4096 * 2 * 4 * 2048
    # before and after prediction and the change of 4 streams, less the norm's own; Laurel's product
    # and its normed output; what is gated in and projected
    by_hand = (3 * 4 - 1) * 2 * 2048 + 2 * (64 + 2048) + 3 * 2 * 2048 + 4 * 2 * 256
    assert layer_parts(one, layout)["streams"] == 4096 * by_hand
    assert streams(library.model("llama3-8b")) == (0.0, 0.0, (0, 0))


@pytest.mark.parametrize(("first", "holds"), [(18, True), (19, False), (34, False)])
def test_readers_of_keys_stay_with_them(first: int, holds: bool) -> None:
    """Layers 20 to 34 read the keys of layers 18 and 19 (num_kv_shared_layers 15)."""
    asked = recipe()
    layout = documents.layout(asked, pp=2, first_layers=first)
    broken = [breach.rule for breach in breaches(asked, layout)]
    assert ("layers that share keys lie in one stage" not in broken) == holds
