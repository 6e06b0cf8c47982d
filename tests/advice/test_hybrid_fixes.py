"""What `check` would change of a hybrid's stages is written in its pattern."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.advice.flag_names import changed
from planner.emit import table
from planner.intake.read import read
from planner.interpret.interpret import interpret
from tests import documents
from tests.emit.test_hybrids import hybrid


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ({"pp": 4}, "M-M|*M-|M-M|*M-"),
        ({"v": 2}, "M-M|*M-|M-M|*M-"),
        ({"pp": 1}, "M-M*M-M-M*M-"),
        ({"stage_layout": "Et*4|t*8L"}, "M-M*|M-M-M*M-"),
    ],
)
def test_stages_are_bounded_in_the_pattern(
    words: dict[str, object], pattern: str, tmp_path: Path
) -> None:
    recipe = documents.recipe(hybrid("M-M*M-" * 2), 32)
    [script] = table.files(recipe, documents.layout(recipe, pp=2), None).values()
    (tmp_path / "launch.sh").write_text(script)
    launch = interpret(read(tmp_path / "launch.sh"))
    out = changed(launch, words)
    assert out.pop("hybrid_layer_pattern") == pattern
    assert out == ({"pipeline_model_parallel_size": words["pp"]} if "pp" in words else {})
