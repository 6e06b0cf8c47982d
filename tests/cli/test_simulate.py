"""`ppplan simulate` as people and programs meet it: figures, files, words, exit codes."""

from __future__ import annotations

import contextlib
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planner.cli import code
from planner.errors import InputError
from planner.pipeline.fewest_microbatches import smallest_m
from planner.pipeline.timelines import StageWork, simulate_schedule
from tests.pipeline.test_forward_only import ROWS, lowest

PICTURE = ("--pp", "4", "--microbatches", "8")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> Ran:
        result = code(["simulate", *map(str, arguments)])
        return Ran(result, *capsys.readouterr())

    return run


def answer(ran: Ran) -> dict[str, Any]:
    assert ran.code in (0, 1) and ran.err == ""
    document: dict[str, Any] = json.loads(ran.out)
    return document


@pytest.mark.parametrize(("schedule", "held"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])])
def test_the_picture_of_four_stages_and_eight_micro_batches(
    simulate: Run, schedule: str, held: list[int]
) -> None:
    """(p - 1) / (m + p - 1) = 3 / 11 for both; GPipe holds m, 1F1B p - i activations."""
    said = answer(simulate("--schedule", schedule, *PICTURE, "--json"))
    assert list(said)[:4] == ["schedule", "pp", "m", "v"]
    assert (said["schedule"], said["pp"], said["m"], said["v"]) == (schedule, 4, 8, 1)
    assert (said["makespan"], said["span"], said["messages"]) == (33, 33, 48)
    assert said["bubble_share"] == said["span_bubble_share"] == pytest.approx(3 / 11)
    assert [rank["peak_in_flight"] for rank in said["ranks"]] == held
    assert {tuple(rank)[:5] for rank in said["ranks"]} == {
        ("rank", "busy", "idle", "peak_in_flight", "peak_in_flight_stages")
    }
    assert all(rank["busy"] == 24 and rank["idle"] == 9 for rank in said["ranks"])
    text = simulate("--schedule", schedule, *PICTURE)
    assert text.code == 0 and "27.27%" in text.out and "37.50% of the busy time" in text.out
    assert max(map(len, text.out.splitlines())) <= 100


def test_words_of_work(simulate: Run) -> None:
    """Closed forms: 1F1B (m + p - 1) T; loss head of half a stage: 57 -> 81 at p = 4, m = 16; ZB-H1
    m T + (p - 1) max(f, b, f + b - w).
    """
    one = answer(
        simulate("--schedule", "1f1b", *PICTURE, "--forward", 2, "--backward", 3, "--json")
    )
    assert one["makespan"] == 55
    head = answer(
        simulate("--schedule", "1f1b", "--pp", 4, "--m", 16, "--head-extra", 0.5, "--json")
    )
    assert head["makespan"] == 81
    split = answer(
        simulate(
            "--schedule",
            "zb-h1",
            *PICTURE,
            "--forward",
            1,
            "--input-grad",
            2,
            "--weight-grad",
            0.5,
            "--json",
        )
    )
    assert split["makespan"] == pytest.approx(8 * 3.5 + 3 * 2.5)
    slow = answer(simulate("--schedule", "gpipe", *PICTURE, "--stage-scale", "1,1,1,1.2", "--json"))
    assert slow["makespan"] == pytest.approx(4.2 + 7 * 1.2 + 2 * (4.2 + 7 * 1.2))
    moved = answer(simulate("--schedule", "gpipe", *PICTURE, "--transfer", 0.5, "--json"))
    assert moved["makespan"] == 33 + 2 * 3 * 0.5
    chunks = answer(simulate("--schedule", "interleaved", "--pp", 4, "--m", 8, "--v", 4, "--json"))
    assert chunks["makespan"] == 8 * 3 + 3 * 3 / 4
    assert (
        chunks["ranks"][0]["peak_in_flight_stages"]
        == chunks["ranks"][0]["peak_in_flight"] / 4
        == (3 * 4 + 2 * 3 + 1) / 4
    )
    kept = answer(
        simulate("--schedule", "zb-h2", "--pp", 4, "--m", 8, "--weight-retained", 0, "--json")
    )
    assert [rank["peak_in_flight"] for rank in kept["ranks"]] == [7, 5, 3, 1]
    blocked = answer(
        simulate(
            "--schedule", "1f1b", "--pp", 2, "--m", 1, "--transfer", 0.25, "--blocking", "--json"
        )
    )
    assert blocked["makespan"] == 2 * 3 + 2 * 0.25


def test_dualpipe_pairs(simulate: Run) -> None:
    """Idle of the busiest rank (p/2 - 1)(pair + b + w - 3 w); with pair = f + b + w the makespan is
    m T + that.
    """
    whole = answer(simulate("--schedule", "dualpipe", "--pp", 4, "--m", 8, "--json"))
    assert whole["makespan"] == 8 * 3 + (3 + 2 - 3)
    short = answer(simulate("--schedule", "dualpipe", "--pp", 4, "--m", 8, "--pair", 2.5, "--json"))
    assert max(rank["idle"] for rank in short["ranks"]) == pytest.approx(2.5 + 2 - 3)


def test_all_schedules_in_one_table(simulate: Run, tmp_path: Path) -> None:
    before = time.process_time()
    said = answer(
        simulate(
            "--schedule",
            "all",
            "--pp",
            8,
            "--microbatches",
            64,
            "--json",
            "--csv",
            tmp_path / "all.csv",
        )
    )
    assert time.process_time() - before < 3
    found = {one["schedule"]: one for one in said["schedules"]}
    assert found["1f1b"]["bubble_share"] == pytest.approx(7 / 71) and found["interleaved"][
        "bubble_share"
    ] == pytest.approx(7 / 135)
    assert found["gpipe"]["ranks"][0]["peak_in_flight"] == 64 and found["zb-h2"][
        "span_bubble_share"
    ] == pytest.approx(0)
    makespans = [one["makespan"] for one in said["schedules"]]
    assert makespans == sorted(makespans)
    assert [one["schedule"] for one in said["not_legal"]] == ["naive"] and "m=64" in said[
        "not_legal"
    ][0]["reason"]
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["schedule"] for row in rows] == [one["schedule"] for one in said["schedules"]]
    assert [float(row["makespan"]) for row in rows] == makespans
    text = simulate("--schedule", "all", "--pp", 8, "--microbatches", 64)
    assert "naive runs the batch as one microbatch" in text.out and "896" in text.out
    assert max(map(len, text.out.splitlines())) <= 100


def test_automatic_schedules_keep_their_memory_limit(simulate: Run) -> None:
    held = {}
    for limit in (2, 4, 8):
        said = answer(
            simulate("--schedule", "zb-1p", "--pp", 4, "--m", 12, "--memory-limit", limit, "--json")
        )
        held[limit] = said["makespan"]
        assert max(rank["peak_in_flight_stages"] for rank in said["ranks"]) <= limit
    assert (
        held[2] > held[4] == 12 * 3 + 3 and held[8] <= held[4]
    )  # at 4 = p: m T + (p - 1) t, as ZB-H1


@pytest.mark.parametrize(
    ("schedule", "pp", "bubble", "m"),
    [
        ("1f1b", 4, 0.1, 28),
        ("1f1b", 9, 0.1, 73),
        ("gpipe", 2, 0.25, 4),
        ("interleaved", 8, 0.1, 32),
        ("zb-h1", 8, 0.1, 22),
        ("dualpipe", 8, 0.1, 20),
        ("1f1b", 1, 0.1, 1),
    ],
)
def test_the_fewest_micro_batches_under_a_bubble(
    simulate: Run, schedule: str, pp: int, bubble: float, m: int
) -> None:
    """From (p-1)/(m+p-1), (p-1)/(2m+p-1), (p-1)/(3m+p-1) strictly under the share (m = 27 at p = 4
    is 10% exactly), and (p/2-1) 2 / (3m + (p/2-1) 2) with m even and at least 2p; interleaving in
    groups of p takes multiples of p.
    """
    said = answer(simulate("--schedule", schedule, "--pp", pp, "--bubble", bubble, "--json"))
    assert said["m"] == m and said["bubble_share"] < bubble and len(said["ranks"]) == pp
    assert (
        f"m = {m} is the fewest"
        in simulate("--schedule", schedule, "--pp", pp, "--bubble", bubble).out
    )


@pytest.mark.parametrize(
    "schedule",
    ["1f1b", "interleaved", "interleaved-torch", "zb-h2", "zbv", "dualpipe", "dualpipev"],
)
@pytest.mark.parametrize("transfer", [0.0, 0.25])
def test_no_smaller_number_of_micro_batches_would_do(schedule: str, transfer: float) -> None:
    work = StageWork(transfer=transfer)
    for pp, bubble in ((2, 0.3), (4, 0.35), (4, 0.25), (6, 0.4)):
        found = smallest_m(schedule, pp, bubble, work=work)
        assert (
            found.m is not None
            and found.simulated is not None
            and found.simulated.timeline.bubble_share < bubble
        )
        for m in range(1, found.m):
            with contextlib.suppress(InputError):
                assert simulate_schedule(
                    schedule, pp, m, work=work
                ).timeline.bubble_share >= bubble * (1 - 1e-9)


def test_no_number_of_micro_batches_is_an_answer(simulate: Run) -> None:
    """With transfers of one unit 1F1B waits 2 c (p-1)/p a micro-batch for ever: 1.5 of 4.5."""
    ran = simulate("--schedule", "1f1b", "--pp", 4, "--bubble", 0.1, "--transfer", 1, "--json")
    assert ran.code == 1
    said = answer(ran)
    assert said["m"] is None and said["makespan"] is None and "33.3" in said["reason"]
    assert simulate("--schedule", "naive", "--pp", 4, "--bubble", 0.1).code == 1


def test_order_in_torch_notation(simulate: Run) -> None:
    ran = simulate("--schedule", "1f1b", "--pp", 3, "--m", 4, "--order")
    assert ran.out.splitlines()[2] == "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"
    assert ran.out.splitlines()[1] == "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"
    assert (
        answer(simulate("--schedule", "1f1b", "--pp", 3, "--m", 4, "--order", "--json"))["order"]
        == ran.out.splitlines()
    )


def test_files(simulate: Run, tmp_path: Path) -> None:
    names = {suffix: tmp_path / f"picture.{suffix}" for suffix in ("svg", "html", "png")}
    for path in names.values():
        assert simulate("--schedule", "zb-h1", *PICTURE, "--gantt", path).code == 0
    ran = simulate(
        "--schedule", "zb-h1", *PICTURE, "--trace", tmp_path / "t.json", "--csv", tmp_path / "t.csv"
    )
    assert (
        "t.json" in ran.out.replace("\n", "")
        and len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 96
    )
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 8 * 3 and max(float(row["end"]) for row in rows) == 27
    assert names["png"].read_bytes()[:4] == b"\x89PNG" and names["svg"].read_text().startswith(
        "<svg "
    )
    assert (
        "<table>" in names["html"].read_text()
        and "http://www.w3.org/2000/svg" in names["html"].read_text()
    )


def test_a_png_without_pillow_is_one_message(
    simulate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    ran = simulate("--schedule", "1f1b", *PICTURE, "--gantt", tmp_path / "x.png")
    assert (
        ran.code == 2 and "pip install 'ppplan[report]'" in ran.err and not list(tmp_path.iterdir())
    )


def test_times_of_a_model(simulate: Run) -> None:
    question = ("--model", "llama3-70b", "--cluster", "h100-sxm", "--tp", 8, "--seq-length", 8192)
    said = answer(simulate("--schedule", "1f1b", *PICTURE, *question, "--json"))
    busy = [rank["busy"] for rank in said["ranks"]]
    assert said["unit"] == "s" and 0.5 < said["makespan"] < 10
    assert (
        busy[1] == pytest.approx(busy[2]) and busy[0] > busy[1] < busy[3]
    )  # embedding first, head and loss last
    assert any("block" in line for line in said["assumed"])
    free = answer(simulate("--schedule", "1f1b", *PICTURE, *question, "--no-blocking", "--json"))
    assert free["makespan"] < said["makespan"]
    both = simulate("--schedule", "1f1b", *PICTURE, *question, "--forward", 1)
    assert both.code == 2 and "leave one out" in both.err
    uneven = simulate("--schedule", "1f1b", "--pp", 7, "--m", 8, *question)
    assert uneven.code == 2 and "80 layers" in uneven.err
    moved = answer(
        simulate(
            "--schedule",
            "1f1b",
            *PICTURE,
            *question,
            "--first-layers",
            21,
            "--last-layers",
            17,
            "--json",
        )
    )
    first, _, _, last = (rank["busy"] for rank in moved["ranks"])
    assert first > busy[0] and last < busy[3] and moved["makespan"] != said["makespan"]
    layout = ("--stage-layout", "Et*10|t*10|t*10|t*10|t*10|t*10|t*10|t*10L")
    assert (
        answer(
            simulate("--schedule", "interleaved", *PICTURE, "--v", 2, *question, *layout, "--json")
        )["v"]
        == 2
    )
    wrong = simulate("--schedule", "1f1b", *PICTURE, *question, *layout)
    assert wrong.code == 2 and "state --v 2" in wrong.err
    assert "ms" in simulate("--schedule", "all", *PICTURE, *question).out


@pytest.mark.parametrize(
    "row", [ROWS[0], ROWS[40], ROWS[-1], ROWS[30]], ids=lambda row: row["scenario"]
)
def test_forward_only_rows(simulate: Run, tmp_path: Path, row: dict[str, str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(lowest(row)))
    said = answer(simulate("--forward-only", path, "--json"))
    assert said["makespan_ms"] == pytest.approx(float(row["makespan_ms"]), rel=5e-6)
    assert said["bubble_ratio"] == pytest.approx(float(row["bubble_ratio"]), abs=1e-6)
    assert {"max_over_mean", "ttft_ms", "tpot_ms", "chunks"} <= said.keys()
    assert simulate("--forward-only", path).code == 0


def test_forward_only_from_a_model(simulate: Run, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "p: 4\nprompt_tokens: 32768\nchunk_tokens: 4096\nchunking: dynamic\ndecode_sequences:"
        " 64\nmode: disaggregated\n"
    )
    said = answer(
        simulate(
            "--forward-only",
            path,
            "--model",
            "llama3-70b",
            "--cluster",
            "h100-sxm",
            "--tp",
            8,
            "--json",
        )
    )
    assert sum(said["chunks"]) == 32768 and set(said["pools"]) == {"prefill", "decode"}
    by_name = {one["name"]: one for one in said["others"]}
    assert (
        by_name["one chunk"]["bubble_ratio"]
        > by_name["fixed 4,096"]["bubble_ratio"]
        > by_name["dynamic 4,096"]["bubble_ratio"]
    )
    # 70e9 parameters in two bytes over 32 GPUs of 3.35 TB/s, and 2 x 70e9 x 32,768 FLOPs over 8 of
    # 989 TFLOP/s: neither can be beaten
    assert (
        said["tpot_ms"] > 70e9 * 2 / 8 / 3.35e12 * 1e3
        and said["ttft_ms"] > 2 * 70e9 * 32768 / 32 / 989e12 * 1e3
    )
    assert said["tpot_ms"] < 200 and said["ttft_ms"] < 10_000
    picture = simulate(
        "--forward-only",
        path,
        "--model",
        "llama3-70b",
        "--cluster",
        "h100-sxm",
        "--gantt",
        tmp_path / "x.svg",
    )
    assert picture.code == 2 and "two pools" in picture.err and not (tmp_path / "x.svg").exists()


ONE = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "a schedule must be stated"),
        (("--schedule", "1f1"), "did you mean 1f1b"),
        (("--schedule", "1f1b"), "add --pp P"),
        (("--schedule", "1f1b", "--pp", 4), "add --microbatches M"),
        (
            ("--schedule", "1f1b", "--pp", 0, "--m", 1),
            "pp must be a whole number of at least 1, but got 0",
        ),
        (("--schedule", "1f1b", "--pp", -3, "--m", 1), "but got -3"),
        (("--schedule", "1f1b", "--pp", 2.5, "--m", 1), "--pp"),
        (("--schedule", "1f1b", "--pp", 10**6, "--m", 1), "at most 4,096 ranks"),
        (("--schedule", "1f1b", "--pp", 4, "--m", 10**12), "pp x microbatches x v must be at most"),
        (
            ("--schedule", "all", "--pp", 4096, "--m", 10**12),
            "pp x microbatches x v must be at most",
        ),
        (("--schedule", "1f1b", "--pp", 4, "--m", 8, "--v", 2), "use v=1"),
        (("--schedule", "interleaved", "--pp", 4, "--m", 9, "--v", 2), "m mod group"),
        (("--schedule", "zb-h2", "--pp", 4, "--m", 5), "use m=8"),
        ((*ONE, "--group", 4), "group is a word of interleaved"),
        ((*ONE, "--memory-limit", 4), "memory-limit is a word of"),
        ((*ONE, "--forward", "nan"), "forward must be a finite time"),
        ((*ONE, "--forward", "inf"), "forward must be a finite time"),
        ((*ONE, "--forward", 1e308), "forward must be a finite time"),
        ((*ONE, "--transfer", -1), "transfer must be a finite time from 0 to 1e+12, but got -1"),
        ((*ONE, "--forward", 0, "--backward", 0), "must take some time"),
        ((*ONE, "--backward", 2, "--input-grad", 1), "stated once"),
        ((*ONE, "--input-grad", 1), "weight-grad is missing"),
        ((*ONE, "--weight-retained", 2), "between 0 and 1"),
        ((*ONE, "--stage-scale", "1,2"), "one factor a rank (4)"),
        ((*ONE, "--stage-scale", "1,x,1,1"), "numbers with commas"),
        ((*ONE, "--stage-scale", "1,0,1,1"), "above 0"),
        ((*ONE, "--bubble", 0.1), "leave one out"),
        (("--schedule", "1f1b", "--pp", 4, "--bubble", 1.5), "between 0 and 1"),
        (("--schedule", "all", "--pp", 4, "--bubble", 0.1), "name one"),
        ((*ONE, "--tp", 8), "add --model NAME"),
        ((*ONE, "--gantt", "picture.pdf"), ".html, .svg, .png"),
        ((*ONE, "--gantt", "/dev/null/picture.svg"), "must be a file to write"),
        ((*ONE, "--trace", "."), "it is a folder"),
        ((*ONE, "--trace", "x", "--csv", "x"), "named twice"),
        (("--schedule", "all", "--pp", 4, "--m", 8, "--order"), "--order is of one schedule"),
        (
            ("--schedule", "zb-1p", "--pp", 4, "--m", 8, "--memory-limit", "nan"),
            "memory-limit must be a finite number",
        ),
        (
            ("--schedule", "zb-1p", "--pp", 4, "--m", 8, "--memory-limit", 0.5),
            "memory limit must hold one microbatch",
        ),
        (("--forward-only", "missing.yaml"), "there is none"),
        (
            ("--forward-only", "missing.yaml", "--pp", 4),
            "--forward-only takes a scenario alone, but got --pp",
        ),
        (("--forward-only", "bad.yaml"), "must be valid YAML"),
        (("--forward-only", "binary.yaml"), "binary file"),
        (("--forward-only", "list.yaml"), "must hold fields"),
        (("--forward-only", "fraction.yaml"), "p must be a whole number, but got 2.5"),
        (("--forward-only", "fine.yaml", "--order"), "--order is of one training schedule"),
    ],
)
def test_bad_input_is_one_clear_message(
    simulate: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("p: [1, 2")
    (tmp_path / "binary.yaml").write_bytes(b"\x00\x01\x02")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "fraction.yaml").write_text("p: 2.5\nstage_times_ms: [1]\n")
    (tmp_path / "fine.yaml").write_text("p: 2\nstage_times_ms: [1]\n")
    before = sorted(tmp_path.iterdir())
    ran = simulate(*arguments)
    assert ran.code == 2 and ran.out == ""
    assert says in ran.err and ran.err.count("\n") == 1 and "Traceback" not in ran.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_picture_of_too_many_actions_is_refused(simulate: Run, tmp_path: Path) -> None:
    ran = simulate("--schedule", "1f1b", "--pp", 64, "--m", 1000, "--gantt", tmp_path / "x.svg")
    assert (
        ran.code == 2 and "at most 100,000 actions" in ran.err and not (tmp_path / "x.svg").exists()
    )


def test_help_names_every_word_of_the_contract() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planner", "simulate", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    words = (
        "schedule pp microbatches v group forward backward input-grad weight-grad pair transfer"
        " blocking stage-scale head-extra weight-retained memory-limit bubble order gantt trace csv"
        " json forward-only model cluster tp mbs seq-length"
    )
    assert not [word for word in words.split() if f"--{word}" not in done.stdout]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--schedule", "1f1b", *PICTURE, "--pair", "2"), "has none"),
        (("--schedule", "1f1b", *PICTURE, "--forward", "fast"), "must be a number, but got 'fast'"),
        (
            ("--schedule", "1f1b", "--pp", "4.5", "--m", "8"),
            "must be a whole number, but got '4.5'",
        ),
        (("--schedule", "1f1b", "--pp", "\u0664", "--m", "8"), "must be a whole number"),
        (("--schedule", "1f1b", "--pp", "4", "--m", "9" * 40), "at most 30 digits"),
        (
            (
                "--schedule",
                "1f1b",
                *PICTURE,
                "--model",
                "llama3-8b",
                "--cluster",
                "h100-sxm",
                "--tp",
                "3",
            ),
            "tp must divide the attention heads",
        ),
        (
            (
                "--schedule",
                "1f1b",
                *PICTURE,
                "--model",
                "llama3-8b",
                "--cluster",
                "h100-sxm",
                "--cp",
                "3",
            ),
            "2 * cp must divide",
        ),
        (
            (
                "--schedule",
                "1f1b",
                *PICTURE,
                "--model",
                "gpt3-175b",
                "--cluster",
                "h100-sxm",
                "--seq-length",
                "4096",
            ),
            "position table",
        ),
    ],
)
def test_words_that_mean_nothing_there_are_refused(
    simulate: Run, words: tuple[str, ...], says: str
) -> None:
    ran = simulate(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err


def test_pair_is_a_word_of_overlapping_schedules(simulate: Run) -> None:
    """Eight micro-batches overlap on two ranks: the pair's time counts there."""
    spans = [
        answer(
            simulate("--schedule", "dualpipe", "--pp", "2", "--m", "8", "--pair", pair, "--json")
        )["makespan"]
        for pair in (2, 3)
    ]
    assert spans[0] < spans[1]


@pytest.mark.parametrize(
    "stray",
    [
        ("--precision", "bf16"),
        ("--mbs", "4"),
        ("--stack", "megatron"),
        ("--seq-length", "512"),
        ("--recompute", "full"),
        ("--no-sp",),
        ("--set", "gpu.tdp_w=1"),
        ("--first-layers", "4"),
        ("--head-extra", "2"),
        ("--weight-retained", "0.5"),
        ("--schedule", "1f1b"),
    ],
)
def test_a_scenario_takes_no_words_of_training(
    simulate: Run, tmp_path: Path, stray: tuple[str, ...]
) -> None:
    (tmp_path / "s.yaml").write_text("p: 2\nstage_times_ms: [1, 2]\n")
    assert answer(simulate("--forward-only", tmp_path / "s.yaml", "--json"))["makespan_ms"] == 5.0
    ran = simulate("--forward-only", tmp_path / "s.yaml", *stray)
    assert (ran.code, ran.out) == (2, "") and stray[0].removeprefix("--no-").removeprefix(
        "--"
    ) in ran.err


def test_all_files_or_none(simulate: Run, tmp_path: Path) -> None:
    """The folder of the second file takes no new files, whoever asks."""
    ran = simulate(
        "--schedule", "1f1b", *PICTURE, "--gantt", tmp_path / "a.svg", "--csv", "/proc/actions.csv"
    )
    assert ran.code == 2 and ran.out == "" and "/proc/actions.csv" in ran.err
    assert list(tmp_path.iterdir()) == []
    assert (
        "named twice"
        in simulate(
            "--schedule", "1f1b", *PICTURE, "--csv", tmp_path / "a", "--trace", f"{tmp_path}/./a"
        ).err
    )
