"""A file of runs, good and bad: typed columns, or one message with file, line and column."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.accuracy import csvfile
from planner.accuracy.columns import COLUMNS, NUMBERS, REQUIRED
from planner.errors import InputError
from tests.published.runs import row, write

HEAD = ",".join(REQUIRED)
GOOD = "gpt,a100,8,1,1,1024,8"


def said(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        csvfile.read(path)
    return str(caught.value)


def put(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_are_typed_and_complete(tmp_path: Path) -> None:
    frame = csvfile.read(
        put(
            tmp_path / "mine.csv",
            f"{HEAD},color,weight\n{GOOD},red,1.5\nllama,h100,16,,2,2048,8,,\n",
        )
    )
    assert set(COLUMNS) <= set(frame.columns)
    assert frame["tp"].tolist()[0] == 1.0 and math.isnan(frame["tp"].tolist()[1])
    assert frame["source"].tolist() == ["mine", "mine"]  # not stated: the file's name
    assert frame["color"].tolist()[0] == "red" and frame["weight"].dtype == float
    assert frame["notes"].dtype == object and frame["mfu"].dtype == float


def test_words_for_true_and_blank(tmp_path: Path) -> None:
    frame = csvfile.read(
        put(tmp_path / "a.csv", f"{HEAD},sp,oom\n{GOOD},True,no\n{GOOD},NaN,n/a\n")
    )
    assert frame["sp"].tolist()[0] == 1.0 and frame["oom"].tolist()[0] == 0.0
    assert frame[["sp", "oom"]].isna().all(axis=1).tolist() == [False, True]


def test_byte_order_mark_blank_lines_and_quotes(tmp_path: Path) -> None:
    text = f'\ufeff{HEAD},notes\r\n{GOOD},"two\r\nlines, one cell"\r\n\r\n{GOOD},x\r\n'
    frame = csvfile.read(put(tmp_path / "a.csv", text))
    assert frame["notes"].tolist() == ["two\r\nlines, one cell", "x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["empty"]),
        (b"\n \n", ["empty"]),
        (f"{HEAD}\n".encode(), ["no runs"]),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ["UTF-8"]),
        (f"{HEAD}\n{GOOD}\n\0".encode(), ["line 3", "zero byte"]),
        (
            HEAD.replace("tp,", "").encode() + b"\ngpt,a100,8,1,1024,8\n",
            ["line 1", "'tp'", "missing"],
        ),
        (f"{HEAD},tp\n{GOOD},1\n".encode(), ["line 1", "'tp'", "2 times"]),
        (f"{HEAD},\n{GOOD},1\n".encode(), ["line 1", "column 8"]),
        (b"a;b;c\n1;2;3\n", ["line 1", "columns of a run"]),
        (f"{HEAD}\n{GOOD}\n{GOOD},9\n".encode(), ["line 3", "7 cells", "got 8"]),
        (
            f"{HEAD}\n{GOOD.replace('a100,8', 'a100,eight')}\n".encode(),
            ["line 2", "'gpus'", "whole number", "'eight'"],
        ),
        (
            f"{HEAD}\n{GOOD}\n{GOOD.replace('a100,8', 'a100,-8')}\n".encode(),
            ["line 3", "'gpus'", "'-8'"],
        ),
        (f"{HEAD},mfu\n{GOOD},inf\n".encode(), ["line 2", "'mfu'", "'inf'"]),
        (f"{HEAD},oom\n{GOOD},2\n".encode(), ["line 2", "'oom'", "0 or 1", "'2'"]),
        (f'{HEAD}\n"gpt,a100,8\n'.encode(), ["line", "CSV"]),
        (f"{HEAD}\n{'x' * 200_000},a100,8,1,1,1024,8\n".encode(), ["line 2", "field larger"]),
    ],
)
def test_bad_file_is_one_message(tmp_path: Path, text: bytes, words: list[str]) -> None:
    message = said(put(tmp_path / "runs.csv", text))
    assert "runs.csv" in message and "\n" not in message
    assert all(word in message for word in words), message


def test_missing_folder_and_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in said(tmp_path / "none.csv")
    assert "directory" in said(tmp_path).lower()
    assert "device" in said(Path("/dev/zero")) and "null byte" in said(tmp_path / "a\0b")
    monkeypatch.setattr(csvfile, "MAX_BYTES", 10**6)
    assert "at most 1 MB" in said(put(tmp_path / "big.csv", b"x" * (10**6 + 1)))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_table_or_a_message(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path / "any.csv", data)
    try:
        csvfile.read(path)
    except InputError as error:
        assert "any.csv" in str(error)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(COLUMNS), st.text(max_size=12))
def test_any_cell_gives_a_table_or_names_its_place(tmp_path: Path, column: str, cell: str) -> None:
    path = write(tmp_path / "cell.csv", row(), row(**{column: cell}))
    try:
        frame = csvfile.read(path)
    except InputError as error:
        assert "line" in str(error) or "UTF-8" in str(error)
    else:
        assert len(frame) == 2 and (frame[column].dtype == float) == (column in NUMBERS)
