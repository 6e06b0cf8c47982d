"""Forward-only pipelines against reference rows and exact laws.

tests/data/pp_inference_reference.csv: 46 rows from an independent exact simulator of FIFO batches
(stage times printed with six digits, so what they give agrees to that rounding; the cost
coefficients behind them give the rows to 1e-6). Whole-model coefficients of those rows, read off
them: a chunk costs 1.6 + 0.048 x + 4.8e-7 ((l + x)^2 - l^2) ms, a decode group 12 + 0.072768 n ms,
each over p stages.
"""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.pipeline.serving.passage import (
    dynamic_chunks,
    fixed_chunks,
    passage,
    ring_period,
    settled_periods,
)
from planner.pipeline.serving.scenario import ServingScenario, scenario
from planner.pipeline.serving.serve import alternatives, simulate_forward_only

with (Path(__file__).parents[1] / "data" / "pp_inference_reference.csv").open(newline="") as file:
    ROWS = [row for row in csv.DictReader(file)]
TIMES = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def lowest(row: dict[str, str]) -> dict[str, object]:
    """The row as the lowest form of a scenario."""
    document: dict[str, object] = {
        "p": int(row["p"]),
        "t_p2p": float(row["t_p2p"]),
        "host": float(row["host"]),
    }
    document["stage_times_ms"] = [float(time) for time in row["stage_times_ms"].split(";")]
    if row["slots"]:
        document["slots"] = int(row["slots"])
    if row["returns"]:
        document["returns"] = [int(batch or -1) for batch in row["returns"].split(";")]
    return document


def higher(row: dict[str, str]) -> dict[str, object]:
    """The row as the higher form, from its name: what was asked before it became batches."""
    p, name = int(row["p"]), row["scenario"]
    cost = {"constant_ms": 1.6 / p, "per_token_ms": 0.048 / p, "per_token_squared_ms": 4.8e-7 / p}
    cost |= {"decode_constant_ms": 12 / p, "decode_ms": 0.072768 / p}
    document: dict[str, object] = {"p": p, "t_p2p": float(row["t_p2p"]), "cost": cost}
    if found := re.fullmatch(r"prefill_(fixed|dynamic)_(\d+)(?:_s([\d.]+))?", name):
        document |= {
            "prompt_tokens": 131072,
            "chunking": found[1],
            "chunk_tokens": int(found[2]),
            "smooth": float(found[3] or 0.75),
        }
    elif name == "prefill_nochunk":
        document |= {"prompt_tokens": 131072}
    elif name == "pd_prefill_side_32k_dyn8192":
        document |= {"prompt_tokens": 32768, "chunking": "dynamic", "chunk_tokens": 8192}
    elif name == "decode_groups_collapsed":
        document |= {"groups": [512]}
    elif found := re.fullmatch(r"decode_G(\d+)", name):
        document |= {
            "groups": [256 // int(found[1])] * int(found[1])
        }  # nine groups of 28 there: four sequences left out
    elif name == "pd_decode_side":
        document |= {"decode_sequences": 256, "groups": 4}
    elif found := re.fullmatch(r"mixed_chunk(\d+)_(every_group|in_group0)", name):
        merge = "every-group" if found[2] == "every_group" else "one-group"
        document |= {
            "prompt_tokens": 32768,
            "chunk_tokens": int(found[1]),
            "decode_sequences": 256,
            "groups": 4,
            "merge": merge,
        }
    else:
        pytest.fail(f"a reference row that the test does not know: {name}")
    return document


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['scenario']}-p{row['p']}")
def test_the_lowest_form_reproduces_the_reference(row: dict[str, str]) -> None:
    served = simulate_forward_only(scenario(lowest(row)))
    digits = sum(
        abs(float(t)) * 5e-6 for t in row["stage_times_ms"].split(";")
    )  # six printed digits of each time
    assert served.makespan_ms == pytest.approx(
        float(row["makespan_ms"]), abs=digits * int(row["p"]), rel=0
    )
    assert served.makespan_ms == pytest.approx(float(row["makespan_ms"]), rel=5e-6)
    assert served.bubble_ratio == pytest.approx(float(row["bubble_ratio"]), abs=1e-6)
    assert served.max_over_mean == pytest.approx(float(row["max_over_mean"]), abs=6e-5)
    assert served.passed is not None and len(served.passed.ends) == int(row["n_batches"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['scenario']}-p{row['p']}")
def test_the_higher_form_reproduces_the_reference(row: dict[str, str]) -> None:
    asked = scenario(higher(row))
    served = simulate_forward_only(asked)
    assert served.passed is not None and len(served.passed.ends) == int(row["n_batches"])
    first = served.passed.ends[:, 0] - served.passed.starts[:, 0]
    assert first == pytest.approx(
        [float(time) for time in row["stage_times_ms"].split(";")], rel=6e-6
    )
    assert served.makespan_ms == pytest.approx(float(row["makespan_ms"]), rel=1e-6)
    assert served.bubble_ratio == pytest.approx(float(row["bubble_ratio"]), abs=1e-6)
    assert served.max_over_mean == pytest.approx(float(row["max_over_mean"]), abs=6e-5)
    if row["scenario"].startswith(("prefill", "pd_prefill")):
        assert served.ttft_ms == served.makespan_ms
    if found := re.search(r"TPOT mean ([\d.]+) max ([\d.]+)", row["notes"]):
        assert (served.tpot_ms, served.tpot_max_ms) == pytest.approx(
            (float(found[1]), float(found[2])), abs=0.006
        )


@given(times=TIMES, p=st.integers(1, 8), c=st.integers(0, 5))
def test_balanced_stages_law(times: list[int], p: int, c: int) -> None:
    passed = passage(np.outer(times, np.ones(p)), transfer=c)
    assert passed.makespan == sum(times) + (p - 1) * max(times) + (p - 1) * c
    assert passed.bubble_share == pytest.approx(1 - sum(times) / passed.makespan)


@given(times=TIMES, speeds=st.lists(st.floats(0.25, 4), min_size=1, max_size=8))
def test_unequal_stages_stay_under_the_bound(times: list[int], speeds: list[float]) -> None:
    makespan = passage(np.outer(times, speeds)).makespan
    slowest = max(speeds)
    assert slowest * sum(times) <= makespan * (1 + 1e-12)
    assert makespan <= (slowest * sum(times) + (sum(speeds) - slowest) * max(times)) * (1 + 1e-12)


@settings(deadline=None)
@given(
    groups=st.lists(st.integers(1, 20), min_size=1, max_size=10),
    p=st.integers(1, 8),
    c=st.integers(0, 3),
    host=st.integers(0, 9),
)
def test_ring_of_decode_groups_settles_to_its_period(
    groups: list[int], p: int, c: int, host: int
) -> None:
    rounds, count = 60, len(groups)
    returns = [max(k - count, -1) for k in range(count * rounds)]
    passed = passage(np.outer(groups * rounds, np.ones(p)), c, host, None, returns)
    period = max(sum(groups), p * max(groups) + p * c + host)
    assert ring_period(groups, p, c, host) == period
    assert settled_periods(passed, returns) == pytest.approx([period] * count)


@given(times=TIMES, p=st.integers(1, 6), c=st.integers(0, 3), host=st.integers(0, 5))
def test_one_slot_runs_the_batches_one_after_another(
    times: list[int], p: int, c: int, host: int
) -> None:
    alone = passage(np.outer(times, np.ones(p)), c, host, slots=1).makespan
    assert alone == p * sum(times) + (p - 1) * c + (len(times) - 1) * (p * c + host)
    assert (
        passage(np.outer(times, np.ones(p)), c, host, slots=len(times)).makespan
        == passage(np.outer(times, np.ones(p)), c).makespan
    )


@settings(deadline=None)
@given(
    prompt=st.integers(1, 200_000),
    base=st.integers(64, 40_000),
    smooth=st.floats(0, 1),
    per_token=st.floats(0, 1),
    squared=st.one_of(st.just(0.0), st.floats(1e-12, 1e-3)),
)
def test_dynamic_chunks_fill_the_prompt(
    prompt: int, base: int, smooth: float, per_token: float, squared: float
) -> None:
    chunks = dynamic_chunks(prompt, base, per_token, squared, smooth)
    assert sum(chunks) == prompt
    assert all(chunk % 64 == 0 for chunk in chunks[:-1])
    assert all(max(base / 4 - 64, 64) <= chunk <= base for chunk in chunks[:-1])
    assert all(later <= earlier for earlier, later in pairwise(chunks))


def test_dynamic_chunks_by_hand() -> None:
    """f(l) = l^2, base 128: chunk x after l solves x^2 + 2 l x = 128^2: after 128 tokens x = 128
    (sqrt 2 - 1) = 53.02.
    """
    assert dynamic_chunks(128 * 3, 128, 0.0, 1.0, smooth=1.0, align=1) == [
        128,
        53,
        40,
        34,
        32,
        32,
        32,
        32,
        1,
    ]
    assert dynamic_chunks(300, 128, 0.0, 1.0, smooth=0.0, align=1) == [128, 128, 44]
    assert dynamic_chunks(300, 128, 1.0, 0.0, smooth=1.0, align=64) == [128, 128, 44]
    assert fixed_chunks(300, 128) == [128, 128, 44] and fixed_chunks(256, 128) == [128, 128]


def test_uneven_decode_groups_cost_a_fifth_and_more() -> None:
    """Groups 7, 13, 2, 10 against 8, 8, 8, 8 on four stages, time in proportion to the sequences: 1
    - 32/52 of the time idle.
    """
    cost = {"constant_ms": 0, "per_token_ms": 0, "per_token_squared_ms": 0, "decode_ms": 1}
    uneven = simulate_forward_only(scenario({"p": 4, "groups": [7, 13, 2, 10], "cost": cost}))
    even = simulate_forward_only(scenario({"p": 4, "groups": [8, 8, 8, 8], "cost": cost}))
    assert (uneven.tpot_ms, even.tpot_ms) == (52, 32)
    assert uneven.tokens_per_s == pytest.approx(32 / 0.052)


def test_disaggregated_is_its_two_pools() -> None:
    cost = {"constant_ms": 1, "per_token_ms": 0.01, "per_token_squared_ms": 1e-7, "decode_ms": 0.02}
    asked = {
        "p": 4,
        "t_p2p": 0.1,
        "prompt_tokens": 8192,
        "chunk_tokens": 1024,
        "decode_sequences": 64,
        "cost": cost,
    }
    both = simulate_forward_only(scenario({**asked, "mode": "disaggregated"}))
    prefill = simulate_forward_only(scenario({**asked, "mode": "prefill"}))
    decode = simulate_forward_only(scenario({**asked, "mode": "decode"}))
    mixed = simulate_forward_only(scenario(asked))
    assert (both.ttft_ms, both.tpot_ms, both.chunks) == (
        prefill.ttft_ms,
        decode.tpot_ms,
        (1024,) * 8,
    )
    idle = prefill.bubble_ratio * prefill.makespan_ms + decode.bubble_ratio * decode.makespan_ms
    assert both.bubble_ratio == pytest.approx(idle / (prefill.makespan_ms + decode.makespan_ms))
    assert (
        mixed.tpot_ms is not None and decode.tpot_ms is not None and mixed.tpot_ms > decode.tpot_ms
    )


def test_a_merged_batch_pays_one_constant_unless_decode_has_its_own() -> None:
    cost = {"constant_ms": 2, "per_token_ms": 0.5, "per_token_squared_ms": 0, "decode_ms": 0.25}
    asked = {"p": 1, "prompt_tokens": 4, "decode_sequences": 4, "rounds": 2, "cost": cost}
    assert simulate_forward_only(scenario(asked)).makespan_ms == (2 + 2 + 1) + (2 + 1)
    asked["cost"] = {**cost, "decode_constant_ms": 3}
    assert simulate_forward_only(scenario(asked)).makespan_ms == (2 + 2 + 3 + 1) + (3 + 1)


def test_a_prompt_longer_than_the_rounds_goes_on_alone() -> None:
    cost = {"constant_ms": 0, "per_token_ms": 1, "per_token_squared_ms": 0, "decode_ms": 1}
    served = simulate_forward_only(
        scenario(
            {
                "p": 1,
                "prompt_tokens": 50,
                "chunk_tokens": 10,
                "decode_sequences": 2,
                "groups": 2,
                "rounds": 1,
                "cost": cost,
            }
        )
    )
    assert served.ttft_ms == served.makespan_ms == 52


def test_alternatives_compare_ways_to_serve() -> None:
    cost = {
        "constant_ms": 0.2,
        "per_token_ms": 0.006,
        "per_token_squared_ms": 6e-8,
        "decode_ms": 0.01,
    }
    asked = scenario({"p": 8, "prompt_tokens": 131072, "chunk_tokens": 8192, "cost": cost})
    assert isinstance(asked, ServingScenario)
    bubbles = {name: served.bubble_ratio for name, served in alternatives(asked)}
    assert bubbles == pytest.approx(
        {"one chunk": 7 / 8, "fixed 8,192": 0.401106, "dynamic 8,192": 0.244}, abs=5e-4
    )


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "p is missing"),
        ([1], "must be a mapping"),
        ({"p": 0, "stage_times_ms": [1]}, "p must be at least 1, but got 0"),
        ({"p": 2.5, "stage_times_ms": [1]}, "p must be a whole number, but got 2.5"),
        ({"p": 10**6, "stage_times_ms": [1]}, "p must be at most 4096, but got 1000000"),
        ({"p": 2, "stage_times_ms": []}, "stage_times_ms"),
        ({"p": 2, "stage_times_ms": [float("nan")]}, "finite number"),
        ({"p": 2, "stage_times_ms": [-1]}, "stage_times_ms.0 must be at least 0.0, but got -1"),
        ({"p": 2, "stage_times_ms": [1, 2], "returns": [-1]}, "one entry a batch, 2, but got 1"),
        ({"p": 2, "stage_times_ms": [1, 2], "returns": [-1, 1]}, "batch 1 names 1"),
        ({"p": 2, "stage_times_ms": [1], "stage_scale": [1]}, "one entry a stage, 2, but got 1"),
        ({"p": 2, "stage_times_ms": [1], "slots": 0}, "slots"),
        ({"p": 2, "stage_times_ms": [1], "speed": 3}, "speed is not a field"),
        ({"p": 2, "stage_times_ms": ["x"] * 99}, "; and 93 more"),
        ({"p": True, "stage_times_ms": [1]}, "p must be a whole number, but got True"),
        ({"p": 2}, "mode prefill needs prompt_tokens"),
        ({"p": 2, "prompt_tokens": 10, "chunking": "fixed"}, "chunking fixed needs chunk_tokens"),
        (
            {"p": 2, "prompt_tokens": 10, "chunking": "dynamic", "chunk_tokens": 8},
            "at least align, 64, but got 8",
        ),
        ({"p": 2, "prompt_tokens": 10**9, "chunk_tokens": 1}, "at most 1,000,000 chunks"),
        ({"p": 2, "mode": "decode"}, "needs decode_sequences"),
        ({"p": 2, "decode_sequences": 3, "groups": 4}, "groups must be at most 3"),
        (
            {"p": 2, "decode_sequences": 3, "groups": [1, 1]},
            "groups must add up to decode_sequences, 3, but add up to 2",
        ),
        ({"p": 2, "prompt_tokens": 10}, "needs cost"),
    ],
)
def test_bad_scenarios_are_one_clear_message(document: object, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        simulate_forward_only(scenario(document))
    assert "\n" not in str(caught.value)


def test_absurd_sizes_are_refused_before_memory_is_taken() -> None:
    cost = {"constant_ms": 1, "per_token_ms": 1, "per_token_squared_ms": 0, "decode_ms": 1}
    for asked in (
        {"prompt_tokens": 10**6, "chunk_tokens": 1},
        {"decode_sequences": 10**6, "groups": 10**6, "rounds": 10**6},
    ):
        with pytest.raises(InputError, match="batches x stages must be at most 5,000,000"):
            simulate_forward_only(scenario({"p": 4096, "cost": cost, **asked}))


WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5000),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 9), max_size=4),
    st.sampled_from(
        [
            "prefill",
            "decode",
            "mixed",
            "disaggregated",
            "none",
            "fixed",
            "dynamic",
            "one-group",
            10**30,
        ]
    ),
)
FIELDS = sorted({*ServingScenario.model_fields, "stage_times_ms", "returns", "other"} - {"model"})
COST = {"constant_ms": 1.0, "per_token_ms": 0.5, "per_token_squared_ms": 0.0, "decode_ms": 0.1}


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(
        [
            {"p": 2, "stage_times_ms": [1, 2]},
            {"p": 3, "cost": COST, "prompt_tokens": 500, "chunk_tokens": 100},
            {"p": 2, "cost": COST, "decode_sequences": 8},
        ]
    ),
    st.dictionaries(st.sampled_from(FIELDS), WEIRD, max_size=3),
)
def test_any_document_gives_an_answer_or_one_message(
    base: dict[str, object], changes: dict[str, object]
) -> None:
    try:
        asked = scenario({**base, **changes})
        served = simulate_forward_only(asked)
    except InputError as fault:
        assert str(fault)
        return
    assert np.isfinite(served.makespan_ms) and -1e-9 <= served.bubble_ratio <= 1
    if isinstance(asked, ServingScenario):
        assert all(np.isfinite(other.makespan_ms) for _, other in alternatives(asked))


COST = {"constant_ms": 1.0, "per_token_ms": 0.01, "per_token_squared_ms": 1e-7}


def test_ways_that_nobody_asked_for_do_not_refuse_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a hundred chunks on four stages are the most: dynamic chunks shrink as the prompt
    grows, so they are more.
    """
    for module in ("planner.pipeline.serving.passage", "planner.pipeline.serving.serve"):
        monkeypatch.setattr(f"{module}.MAX_CELLS", 400)
    asked = scenario({"p": 4, "prompt_tokens": 100_000, "chunk_tokens": 1000, "cost": COST})
    assert isinstance(asked, ServingScenario)
    assert [name for name, _ in alternatives(asked)] == ["one chunk", "fixed 1,000"]
    assert len(simulate_forward_only(asked).chunks or ()) == 100
    for way in ({"chunking": "dynamic"}, {"chunk_tokens": 999}):
        with pytest.raises(InputError, match="cut"):
            simulate_forward_only(asked.model_copy(update=way))


@pytest.mark.parametrize("stray", [{"tp": 8}, {"context_tokens": 100}, {"cluster": "h100-sxm"}])
def test_words_of_a_model_need_a_model(stray: dict[str, object]) -> None:
    with pytest.raises(InputError, match="model"):
        scenario({"p": 4, "prompt_tokens": 4096, "cost": COST, **stray})
