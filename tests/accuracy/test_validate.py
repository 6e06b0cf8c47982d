"""Selection, conventions of time and memory, choice among open knobs: against values by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy import predict
from planner.accuracy.csvfile import read
from planner.accuracy.rows import run
from planner.accuracy.validate import PUBLISHED, Validation, select, validate
from planner.errors import InputError
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.units import GIB
from tests.published.runs import row, write

pytestmark = pytest.mark.slow


def one(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The answer to one row."""
    found = validate([write(tmp_path / "one.csv", row(**changes))])
    return dict(found.rows.iloc[0])


def test_the_prediction_is_the_estimate_of_the_layout(tmp_path: Path) -> None:
    answer = one(tmp_path, step_time_s=2.0)
    asked = run(row())
    said = estimate(asked.recipe, asked.layouts[0])
    assert answer["predicted_step_s"] == pytest.approx(float(said.step_s), rel=1e-12)
    assert answer["predicted_reserved_gib"] == pytest.approx(
        float(said.memory.reserved_bytes) / GIB, rel=1e-12
    )
    assert answer["predicted_oom_probability"] == pytest.approx(
        float(said.oom_probability), rel=1e-12
    )
    assert answer["error"] == pytest.approx(float(said.step_s) / 2.0 - 1)


def test_simulated_schedules_are_predicted_by_their_order(tmp_path: Path) -> None:
    knobs = {"tp": 1, "pp": 4, "dp": 2, "schedule": "zb-h1"}
    asked = run(row(**knobs))
    said = estimate(asked.recipe, asked.layouts[0], exact=True)
    assert one(tmp_path, **knobs)["predicted_step_s"] == pytest.approx(said.step_s, rel=1e-9)


# FLOPs of a token by hand: 24 layers of 12 h^2 = 50,331,648 weights and a head of 51,200 x 2,048: N
# = 1,312,817,152; attention 12 L h s.
N, ATTENTION, TOKENS = 24 * 12 * 2048**2 + 51_200 * 2048, 12.0 * 24 * 2048 * 1024, 32 * 1024
FULL, CAUSAL = 6.0 * N + ATTENTION, 6.0 * N + ATTENTION / 2
HEAD = 6.0 * 51_200 * 2048


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ({"step_time_s": 3.0, "tokens_per_s_per_gpu": 1.0}, 3.0),
        ({"tokens_per_s_per_gpu": 1000.0, "model_tflops_per_gpu": 1.0}, TOKENS / 8000),
        ({"model_tflops_per_gpu": 100.0, "mfu": 0.9}, CAUSAL * TOKENS / 8e14),
        ({"model_tflops_per_gpu": 100.0, "flop_convention": "causal"}, CAUSAL * TOKENS / 8e14),
        ({"model_tflops_per_gpu": 100.0, "flop_convention": "full"}, FULL * TOKENS / 8e14),
        (
            {"model_tflops_per_gpu": 100.0, "source_ref": "NVIDIA/NeMo docs performance.md"},
            FULL * TOKENS / 8e14,
        ),
        ({"mfu": 0.5, "flop_convention": "full"}, FULL * TOKENS / (8 * 156e12)),
        ({"mfu": 50, "flop_convention": "full"}, FULL * TOKENS / (8 * 156e12)),
        (
            {"hfu": 0.5, "flop_convention": "full with recompute (hfu)"},
            (FULL + (FULL - HEAD) / 3) * TOKENS / (8 * 156e12),
        ),
        ({"step_time_s": 0}, math.nan),
        ({}, math.nan),
    ],
)
def test_time_of_a_row(tmp_path: Path, stated: dict[str, Any], seconds: float) -> None:
    answer = one(tmp_path, **{"step_time_s": None, **stated})
    assert answer["measured_step_s"] == pytest.approx(seconds, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("kind", "extra", "column", "factor"),
    [
        ("allocated", {}, "predicted_allocated_gib", 1.0),
        ("reserved", {}, "predicted_reserved_gib", 1.0),
        ("device", {}, "predicted_device_gib", 1.0),
        ("unstated", {}, "predicted_reserved_gib", 1.0),
        (None, {}, "predicted_reserved_gib", 1.0),
        (
            None,
            {"source_ref": "NVIDIA-NeMo/Megatron-Bridge skills"},
            "predicted_allocated_gib",
            1e9 / 2**30,
        ),
        (
            None,
            {"source_ref": "NVIDIA-NeMo/Megatron-Bridge card", "notes": "peak reserved 45 GiB"},
            "predicted_allocated_gib",
            1.0,
        ),
        (
            None,
            {
                "source_ref": "NVIDIA-NeMo/Megatron-Bridge card",
                "notes": "peak mem = observed GPU memory",
            },
            "predicted_device_gib",
            1.0,
        ),
    ],
)
def test_memory_is_compared_with_its_kind(
    tmp_path: Path, kind: str | None, extra: dict[str, str], column: str, factor: float
) -> None:
    answer = one(tmp_path, peak_mem_gib=40.0, peak_mem_kind=kind, **extra)
    assert answer["memory_error"] == pytest.approx(answer[column] / (40.0 * factor) - 1)


def test_allocated_memory_beside_a_reserved_peak(tmp_path: Path) -> None:
    notes = (
        "peak_mem_gib is the largest reserved over ranks; largest allocated 66.55 GiB; allocated by"
        " rank 66.552 66.55"
    )
    assert (
        one(tmp_path, peak_mem_gib=70.88, peak_mem_kind="reserved", notes=notes)[
            "measured_allocated_gib"
        ]
        == 66.55
    )


def test_the_best_legal_fitting_layout_stands_for_what_is_open(tmp_path: Path) -> None:
    answer = one(tmp_path, mbs=None, recompute=None)
    asked = run(row(mbs=None, recompute=None))
    said = estimate(asked.recipe, asked.layouts)
    fits = np.asarray(said.oom_probability) < 0.1
    best = np.where(fits, np.asarray(said.step_s), np.inf).min()
    assert answer["predicted_step_s"] == pytest.approx(best, rel=1e-12)
    assert (
        "mbs" in answer["assumed"]
        and f"the best of {len(asked.layouts)} layouts" in answer["assumed"]
    )


def test_choice_by_fake_figures() -> None:
    def figures(time: list[float], oom: list[float]) -> predict.Columns:
        blank = np.zeros(len(time))
        every = predict.Columns(*[blank] * 9)
        return replace(every, step_s=np.array(time), oom_probability=np.array(oom))

    everything = slice(0, 3)
    legal = np.array([True, True, True])
    assert predict.best_layout(figures([1, 2, 3], [0.5, 0.0, 0.0]), legal, everything) == 1
    assert (
        predict.best_layout(
            figures([1, 2, 3], [0.0, 0.0, 0.0]), np.array([False, False, True]), everything
        )
        == 2
    )
    assert predict.best_layout(figures([1, 2, 3], [0.0, 0.0, 0.0]), ~legal, everything) == 0
    assert predict.best_layout(figures([1, 2, 3], [0.9, 0.5, 0.5]), legal, everything) == 1


def test_what_the_model_refuses_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(recipe: Recipe, layout: Layout, exact: bool = False) -> None:
        raise InputError("no such thing is modelled")

    monkeypatch.setattr(predict, "estimate", refuses)
    found = validate([write(tmp_path / "one.csv", row(), row())])
    assert found.skipped == {"no such thing is modelled": 2}
    assert found.predicted == 0 and math.isnan(found.overall["median_abs_error"])


def test_skipped_rows_stay_in_the_answer(tmp_path: Path) -> None:
    found = validate(
        [
            write(
                tmp_path / "mixed.csv",
                row(),
                row(hardware="abacus"),
                row(gpus=None),
                row(gpus=None),
            )
        ]
    )
    assert (len(found.rows), found.predicted) == (4, 1)
    assert found.skipped == {"gpus not stated": 2, "unknown hardware: abacus": 1}
    assert [group["rows"] for group in found.groups] == [3, 1]
    assert found.rows["skipped"].isna().tolist() == [True, False, False, False]


def test_a_row_is_predicted_the_same_alone_and_among_others() -> None:
    rows = select(read(PUBLISHED / "vtrain_multi.csv"), where="gpus == 64")
    together = predict.predicted(rows)["predicted_step_s"].to_numpy()
    alone = [
        predict.predicted(rows.iloc[[i]])["predicted_step_s"].iloc[0]
        for i in range(0, len(rows), 7)
    ]
    assert alone == pytest.approx(together[::7].tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("tp == 1", 1),
        ("experts != experts and not tp > 1", 1),
        ("notes != notes", 1),
        ("notes.str.contains('HIST', na=False)", 1),
        ("not notes.str.contains('HIST', na=False)", 1),
        ("model.str.startswith('gpt') and gpus in [8, 16]", 2),
        ("extra > 1", 1),
        ("tp == 3", 0),
    ],
)
def test_where(tmp_path: Path, where: str, count: int) -> None:
    path = write(tmp_path / "two.csv", row(tp=1, extra=1, notes="HISTORY"), row(tp=2, extra=2))
    assert len(select(read(path), where=where)) == count


@pytest.mark.parametrize(
    "where",
    [
        "tp <",
        "",
        "tp + 1",
        "tp",
        "no_column > 1",
        "tp = 3",
        "@os",
        "3 > 2",
        "tp.nonsense()",
        "import os",
        "tp[",
        "x" * 5000,
    ],
)
def test_bad_where_is_one_message(where: str) -> None:
    with pytest.raises(InputError) as caught:
        select(read(PUBLISHED / "korthikanti2022.csv"), where=where)
    assert "--where must be a pandas query" in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "where",
    [
        "(tp.to_csv('{here}') == 1) | (tp > 0)",
        "source.to_pickle('{here}') == 1",
        "tp.__class__.__init__.__globals__['__builtins__']['open']('{here}', 'w') == 1",
        "source.map(open('{here}', 'w').write) == 1",
        "__import__('pathlib').Path('{here}').touch() == None",
        "tp.pipe(lambda x: open('{here}', 'w')) == 1",
        "9**9**9**9 > tp",
        "'a' * 10000000000 == source",
        "[1] * 10000000000 == tp",
        "source.str.repeat(10000000000) == 'a'",
    ],
)
def test_where_only_looks_at_columns(tmp_path: Path, where: str) -> None:
    rows = pd.DataFrame({"source": ["a"], "tp": [1.0]})
    with pytest.raises(InputError, match="--where must be a pandas query"):
        select(rows, where=where.format(here=tmp_path / "written"))
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20))
def test_any_where_selects_or_says_why(where: str) -> None:
    rows = pd.DataFrame({"source": ["a"], "tp": [1.0]})
    try:
        assert len(select(rows, where=where)) in (0, 1)
    except InputError as error:
        assert "\n" not in str(error)


def test_unknown_source_names_the_nearest() -> None:
    with pytest.raises(InputError, match="korthikanti2022"):
        validate([PUBLISHED / "korthikanti2022.csv"], source="kortikanti2022")


@pytest.fixture(scope="module")
def everything() -> Validation:
    return validate()


def test_published_runs_are_all_there(everything: Validation) -> None:
    # Counts by hand from the sources' lists; 4,154 rows in all.
    counts = {
        "alephalpha_13b": 422,
        "deepseek_v3_gb200": 13,
        "dlperf_v100": 35,
        "korthikanti2022": 14,
        "llmfoundry_a100": 223,
        "mbridge_cards": 131,
        "megatron_moe_zoo": 19,
        "mlengineering_h200_b200": 17,
        "narayanan_sc21": 38,
        "nemo_automodel": 15,
        "nemo_to_2025": 304,
        "primus": 27,
        "simumax_b200": 43,
        "ultrascale": 1165,
        "vtrain_multi": 109,
        "vtrain_single": 1440,
        "zero_bubble": 139,
    }
    assert everything.rows["source"].value_counts().to_dict() == counts
    assert sum(counts.values()) == len(everything.rows) == 4154


def test_every_row_is_predicted_or_says_why_not(everything: Validation) -> None:
    rows = everything.rows
    assert (rows["predicted_step_s"].notna() ^ rows["skipped"].notna()).all()
    assert everything.predicted + sum(everything.skipped.values()) == len(rows)
    assert sum(group["rows"] for group in everything.groups) == len(rows)
    assert sum(group["predicted"] for group in everything.groups) == everything.predicted
    predicted = rows[rows["skipped"].isna()]
    assert (predicted["predicted_step_s"] > 0).all() and predicted[
        "predicted_oom_probability"
    ].between(0, 1).all()


def test_dense_sources_are_predicted_whole(everything: Validation) -> None:
    dense = [
        "alephalpha_13b",
        "dlperf_v100",
        "korthikanti2022",
        "llmfoundry_a100",
        "ultrascale",
        "vtrain_multi",
        "vtrain_single",
    ]
    assert (
        everything.rows.loc[everything.rows["source"].isin([*dense, "zero_bubble"]), "skipped"]
        .isna()
        .all()
    )
