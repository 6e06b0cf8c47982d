"""The table by kind of layer: the same figures in every answer, and FLOPs that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.cost.flops import model_flops
from planner.estimate import kinds_of_layers
from planner.report.html import check as check_page
from planner.report.html import compare as compare_page
from planner.report.html import explain as explain_page
from planner.report.json import check as check_json
from planner.report.json import compare as compare_json
from planner.report.json import explain as explain_json
from planner.report.text import check as check_text
from planner.report.text import compare as compare_text
from planner.report.text import explain as explain_text
from tests import documents

WORDS: dict[str, Any] = {
    "model": "qwen3-next-80b-a3b",
    "gpus": 64,
    "cluster": "h100-sxm",
    "global_batch_size": 64,
    "tp": 1,
    "pp": 1,
    "ep": 64,
    "mbs": 1,
    "zero": 1,
    "recompute": "full",
}


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "granite4.0-h-tiny", "gemma3-4b"])
def test_flops_of_the_kinds_and_of_the_head_are_those_of_the_model(name: str) -> None:
    """Head: 6 V h a token."""
    recipe = documents.recipe(name, 8)
    layout = documents.layout(recipe, mbs=2)
    kinds, model = kinds_of_layers(recipe, layout), recipe.model
    head = 6 * model.vocab_size * model.hidden_size * recipe.seq_length * layout.mbs
    micro_batches = recipe.global_batch_size / layout.mbs
    whole = model_flops(recipe, full_attention=False) / micro_batches
    layers = sum(kind.layers * kind.flops for kind in kinds)
    assert layers + head == pytest.approx(whole, rel=1e-9)


def test_every_answer_has_the_same_table(tmp_path: Path) -> None:
    api.recommend(api.question(**WORDS), out=tmp_path)
    explained = api.explain(tmp_path / "plan.yaml")
    compared = api.compare(plans=[tmp_path / "plan.yaml", tmp_path / "plan.yaml"])
    checked = api.check(tmp_path / "launch.sh", cluster="h100-sxm")
    for text in (
        explain_text.text(explained),
        compare_text.text(compared),
        check_text.text(checked),
    ):
        titles = [str(part) for part in text.renderables if "Layer by kind" in str(part)]
        assert titles
    rows = [
        next(section.grid for section in page.sections if section.title == "Layer by kind")
        for page in (explain_page.page(explained), check_page.page(checked))
    ]
    [of_compare] = [
        section.more for section in compare_page.page(compared).sections if "kind" in section.title
    ]
    assert rows[0] == of_compare[0].grid
    assert {row[0] for row in rows[1].rows} == {row[0] for row in rows[0].rows}
    first = explain_json.document(explained)["kinds"]
    assert compare_json.document(compared)["rows"][0]["kinds"] == first
    assert len(check_json.document(checked)["kinds"]) == len(first)
