"""The README's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.accuracy.maintain import table
from planner.accuracy.validate import PUBLISHED, validate
from planner.errors import InputError


def test_the_table_says_what_validate_found() -> None:
    found = validate([PUBLISHED / "korthikanti2022.csv", PUBLISHED / "narayanan_sc21.csv"])
    lines = table.table(found).splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    assert len({len(row) for row in cells}) == 1
    assert [row[0] for row in cells[2:]] == [
        "korthikanti2022",
        "narayanan_sc21",
        "**all, sources weighted equally**",
    ]
    assert cells[2][2] == "14 of 14"
    assert float(cells[2][3].rstrip("%")) == pytest.approx(
        100 * found.groups[0]["median_abs_error"], abs=0.051
    )
    assert lines[-1].startswith("Not predicted: ") and "gpus not stated (4)" in lines[-1]


def test_only_what_is_between_the_markers_changes() -> None:
    text = f"a\n{table.BEGIN}\nold\n{table.END}\nb\n"
    new = table.replaced(text, "new")
    assert new == f"a\n{table.BEGIN}\nnew\n{table.END}\nb\n"
    assert table.replaced(new, "new") == new


@pytest.mark.parametrize(
    "text",
    ["", table.BEGIN, f"{table.END} {table.BEGIN}", f"{table.BEGIN}{table.BEGIN}{table.END}"],
)
def test_missing_markers_are_said(text: str) -> None:
    with pytest.raises(InputError, match="accuracy:begin"):
        table.replaced(text, "new")


def test_a_file_without_markers_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "validate", lambda: validate([PUBLISHED / "korthikanti2022.csv"]))
    file = tmp_path / "README.md"
    file.write_text("nothing")
    assert table.main(["--file", str(file)]) == 2 and file.read_text() == "nothing"
    file.write_text(f"{table.BEGIN}\n{table.END}\n")
    assert table.main(["--file", str(file)]) == 0 and "korthikanti2022" in file.read_text()
    assert capsys.readouterr().err.count("\n") == 1


def test_the_readme_has_the_markers() -> None:
    assert table.replaced(table.README.read_text(encoding="utf-8"), "x")
