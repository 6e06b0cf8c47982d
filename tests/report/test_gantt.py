"""Pictures of timelines: each must show what the simulator said, no more and no less."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.pipeline.answer import ServedAnswer
from planner.pipeline.serving.scenario import scenario
from planner.pipeline.serving.serve import simulate_forward_only
from planner.pipeline.timelines import SimulatedSchedule, StageWork, simulate_schedule
from planner.report.draw import trace
from planner.report.draw.gantt_chart import COLOURS, Chart, colour, ink, ticks
from planner.report.draw.png import SCALE, png
from planner.report.draw.svg import GAP, LEFT, ROW, TOP, WIDTH, html, svg
from planner.report.json.simulate import document
from planner.report.simulate_files import contents
from planner.report.text import serve, simulate
from planner.report.text.gantt import gantt

SVG = "{http://www.w3.org/2000/svg}"
CASES = [
    ("1f1b", 4, 8, None),
    ("gpipe", 3, 5, None),
    ("interleaved", 4, 8, 2),
    ("zb-h1", 4, 8, None),
    ("dualpipe", 4, 8, None),
    ("zbv", 2, 4, None),
]


def lines(chart: Chart, width: int = 100) -> list[str]:
    return gantt(chart, width).plain.splitlines()


def done(name: str, pp: int, m: int, v: int | None) -> SimulatedSchedule:
    return simulate_schedule(name, pp, m, v)


def test_the_textbook_picture_of_1f1b() -> None:
    """Drawn by hand: one unit is two columns at 4 ranks and 8 micro-batches; forward 1,
    backward 2.
    """
    drawn = lines(simulate.chart(done("1f1b", 4, 8, None)))
    assert drawn[0] == "rank 0 0·1·2·3·            0═══4·1═══5·2═══6·3═══7·4═══  5═══  6═══  7═══"
    assert drawn[3] == "rank 3       0·0═══1·1═══2·2═══3·3═══4·4═══5·5═══6·6═══7·7═══"
    assert drawn[4].split() == ["0", "10", "20", "30"] and drawn[4].index("10") == 7 + 20
    assert "forward" in drawn[5] and "backward" in drawn[5] and "weight" not in drawn[5]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("width", [60, 100, 240])
def test_columns_hold_what_runs_at_their_middle(
    case: tuple[str, int, int, int | None], width: int
) -> None:
    one = done(*case)
    chart = simulate.chart(one)
    drawn = lines(chart, width)
    assert max(map(len, drawn)) <= width
    margin = len("rank 0 ")
    columns = max(len(line) for line in drawn[: chart.rows]) - margin
    assert columns <= width - margin
    for rank in range(chart.rows):
        row = drawn[rank][margin:].ljust(columns)
        middles = (np.arange(columns) + 0.5) * chart.makespan / columns
        busy = [
            bool(((one.timeline.start[rank] < t) & (t < one.timeline.end[rank])).any())
            for t in middles
        ]
        assert [char != " " for char in row] == busy


def test_many_rows_are_cut_in_the_middle() -> None:
    drawn = lines(simulate.chart(done("1f1b", 100, 4, None)))
    assert len(drawn) == 64 + 1 + 2 and "36 rows between" in drawn[32]
    assert drawn[31].startswith("rank 31 ") and drawn[33].startswith("rank 68 ")


def test_long_makespans_carry_no_stray_numbers() -> None:
    drawn = lines(simulate.chart(done("1f1b", 4, 400, None)))
    assert not any(re.search(r"\d", line[7:]) for line in drawn[:4]) and max(map(len, drawn)) <= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_svg_bars_are_the_timeline(case: tuple[str, int, int, int | None]) -> None:
    one = done(*case)
    root = ElementTree.fromstring(svg(simulate.chart(one)))
    bars = [(rect, rect.find(f"{SVG}title")) for rect in root.iter(f"{SVG}rect")]
    drawn = defaultdict(set)
    for rect, said in bars:
        if said is not None:
            rank = int((float(rect.attrib["y"]) - TOP) // (ROW + GAP))
            name = str(said.text).split(":")[0]
            scale = one.timeline.makespan / WIDTH
            drawn[rank].add(
                (
                    name,
                    round((float(rect.attrib["x"]) - LEFT) * scale, 1),
                    round(float(rect.attrib["width"]) * scale, 1),
                )
            )
    for rank, rows in enumerate(one.order.actions):
        names = [f"{s}{'FBIW'[k]}{j}" for s, k, j, _ in rows.tolist()]
        start, end = one.timeline.start[rank], one.timeline.end[rank]
        wanted = {
            (name, round(float(a), 1), round(float(b - a), 1))
            for name, a, b in zip(names, start, end, strict=True)
        }
        assert drawn[rank] == wanted
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert simulate.title(one) in texts


def test_a_page_needs_nothing_from_elsewhere() -> None:
    one = done("dualpipe", 4, 8, None)
    page = html(simulate.chart(one), simulate.RANK_COLUMNS, simulate.rank_rows(one))
    assert not re.search(r"(?:src|href)\s*=|@import|url\(", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert page.count("<tr>") == 1 + 4 and page.count("<svg ") == 1


def test_png_pixels_are_the_bars() -> None:
    image_module = pytest.importorskip("PIL.Image")
    one = done("zb-h1", 4, 8, None)
    image = image_module.open(io.BytesIO(png(simulate.chart(one)))).convert("RGB")
    for rank, rows in enumerate(one.order.actions):
        times = zip(
            rows.tolist(),
            one.timeline.start[rank].tolist(),
            one.timeline.end[rank].tolist(),
            strict=True,
        )
        for (_, kind, _, _), start, end in times:
            x = (
                LEFT + (start + (end - start) * 0.15) * WIDTH / one.timeline.makespan
            )  # beside the number
            assert (
                image.getpixel((int(x * SCALE), int((TOP + rank * (ROW + GAP) + 5) * SCALE)))
                == COLOURS["FBIW"[kind]]
            )
    idle = int((LEFT + 0.5 * WIDTH / one.timeline.makespan) * SCALE)
    assert image.getpixel((idle, int((TOP + 3 * (ROW + GAP) + 5) * SCALE))) == (244, 244, 244)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_trace_slices_and_counters(case: tuple[str, int, int, int | None]) -> None:
    one = done(*case)
    events = json.loads(trace.trace(one))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(map(len, one.order.actions))
    for rank in range(one.pp):
        mine = sorted((event["ts"], event["dur"]) for event in slices if event["tid"] == rank)
        assert sum(dur for _, dur in set(mine)) == pytest.approx(one.timeline.busy[rank] * 1e3)
        assert max(ts + dur for ts, dur in mine) == pytest.approx(
            one.timeline.end[rank].max() * 1e3
        )
        counts = [
            event["args"]["chunks"]
            for event in events
            if event["ph"] == "C" and event["name"].endswith(f" {rank}")
        ]
        assert max(counts) == one.timeline.peak_in_flight[rank] and counts[-1] == 0


def test_forward_only_files_and_json() -> None:
    asked = scenario({"p": 2, "stage_times_ms": [1, 2, 1], "returns": [-1, -1, 0], "t_p2p": 0.5})
    found = ServedAnswer(simulate_forward_only(asked), ())
    made = contents(found, "x.svg", "x.json", "x.csv")
    assert made["x.csv"].splitlines()[1:3] == ["0,0,-1,0.0,1.0", "0,1,-1,1.5,2.5"]
    slices = [event for event in json.loads(made["x.json"])["traceEvents"] if event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in slices[-2:]] == [
        (3000.0, 1000.0),
        (5500.0, 1000.0),
    ]
    said = document(found, order=False)
    assert (
        said["makespan_ms"] == 6.5
        and said["tpot_ms"] == 4.0
        and said["chunks"] is None
        and said["ttft_ms"] is None
    )
    assert "prefill" in gantt(serve.chart(found.served), 100).plain and "decode" in str(
        made["x.svg"]
    )


def test_times_of_a_cost_model_are_shown_in_milliseconds() -> None:
    one = simulate_schedule(
        "1f1b", 2, 2, work=StageWork(forward=0.001, input_grad=0.001, weight_grad=0.001, unit="s")
    )
    chart = simulate.chart(one)
    assert chart.unit == "ms" and chart.makespan == pytest.approx(9) and "9.00 ms" in chart.note
    slices = [event for event in json.loads(trace.trace(one))["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(9000)


@given(st.floats(1e-6, 1e9), st.integers(1, 40))
def test_ticks_are_round_and_few(makespan: float, most: int) -> None:
    found = ticks(makespan, most)
    assert found[0] == 0 and found[-1] <= makespan * (1 + 1e-9) and 1 <= len(found) <= most + 1
    if len(found) > 1:
        assert f"{found[1]:.3e}"[0] in "125" and found[-1] + found[1] > makespan * (1 - 1e-9)


@given(st.sampled_from(sorted(COLOURS)), st.integers(0, 9))
def test_ink_reads_on_every_colour(kind: str, shade: int) -> None:
    """Contrast of relative luminance, as web pages ask for large text: 3 to 1."""
    ground = colour(kind, shade)
    bright, dark = sorted((luminance(ground), luminance(ink(ground))), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) > 3


def luminance(rgb: tuple[int, int, int]) -> float:
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
