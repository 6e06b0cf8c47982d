"""HTML reports: in a real Chromium at both widths, self-contained, their figures valid for plotly,
what users write escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from planner import api
from planner.calibrate.calibrate import Calibration
from planner.launch.outcome import Outcome
from planner.report.draw.chart import Chart
from planner.report.html import (
    calibrate,
    check,
    compare,
    explain,
    recommend,
    simulate,
    sweep,
    tune,
    validate,
)
from planner.report.html.page import Grid, Page, Section, html, plotly_js
from planner.report.text import tune as terminal
from planner.tune.tune import Tuned
from tests.calibrate.test_profile import made
from tests.report import measured
from tests.report.browser import browser, faults, screen

QUESTION = {"model": "llama3-70b", "gpus": 32, "cluster": "h100-sxm"}
LAUNCH = Path(__file__).parent.parent / "data" / "cases" / "megatron-lm-1000" / "launch.sh"
LIMIT = 2_000_000
"""Characters of a page beside plotly.js."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuned]:
    folder = tmp_path_factory.mktemp("study")
    return folder, measured.tuned(folder)


@pytest.fixture(scope="module")
def pages(study: tuple[Path, Tuned]) -> dict[str, Page]:
    asked = api.question(**QUESTION)
    mixture = api.question(model="mixtral-8x7b", gpus=64, cluster="a100-80g-pcie", tp=2, pp=4, ep=8)
    runs = api.validate(source="korthikanti2022")
    return {
        "recommended": recommend.page(api.recommend(asked)),
        "nothing": recommend.page(
            api.recommend(api.question(model="llama3-405b", gpus=8, cluster="h100-sxm"))
        ),
        "explained": explain.page(api.explain(mixture)),
        "swept": sweep.page(
            api.sweep(api.question(**QUESTION, tp=4, pp=4), {"v": [1, 2, 5], "mbs": [1, 2]})
        ),
        "simulated": simulate.page(api.simulate(schedule="zb-h1", pp=4, m=8)),
        "compared": simulate.page(api.simulate(schedule="all", pp=4, m=8)),
        "checked": check.page(
            api.check(LAUNCH, cluster="a100-80g-sxm", oom="Tried to allocate 126.00 MiB")
        ),
        "refused": check.page(api.check(LAUNCH.parent.parent / "ms-swift-5737" / "launch.sh")),
        "validated": validate.page(runs),
        "tuned": tune.page(study[1]),
        "all failed": tune.page(measured.failed(study[0])),
        "calibrated": calibrate.page(measured.calibrated(study[0])),
        "not calibrated": calibrate.page(
            Calibration(None, "", 0, {}, Outcome("timeout", None, "after 600 s", "its last words"))
        ),
        "clusters": compare.page(
            api.compare(
                api.question(model="llama3-8b"),
                {"cluster": ["h100-sxm", "l40s-pcie"], "gpus": [8, 64]},
            )
        ),
    }


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("browser")) as chromium:
        yield chromium


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, True)])
def test_pages_are_whole_in_a_browser(
    opened: Any,
    pages: dict[str, Page],
    tmp_path_factory: pytest.TempPathFactory,
    width: int,
    dark: bool,
) -> None:
    """At one address, where Chromium compiles plotly.js once."""
    path = tmp_path_factory.getbasetemp() / "page.html"
    screen(opened, width, dark)
    for name, page in pages.items():
        path.write_text(html(page), encoding="utf-8")
        assert faults(opened, path) == [], name


def test_the_browser_test_sees_what_is_wrong(opened: Any, tmp_path: Path) -> None:
    """A word that does not break, an axis without data and an error in a script are all found."""
    path = tmp_path / "bad.html"
    empty = Chart({"data": [{"type": "bar", "x": [], "y": []}], "layout": {}}, "nothing")
    text = html(Page("bad", sections=(Section("x", charts=(empty,)),)))
    text = text.replace(
        "<header>", "<script>nothing.there()</script><div style='width:2000px'>wide</div><header>"
    )
    path.write_text(text, encoding="utf-8")
    screen(opened, 420)
    found = " ".join(faults(opened, path))
    assert "ReferenceError" in found and "chart-0 is empty" in found and "wide" in found


def test_pages_are_small_and_load_nothing(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        text = html(page)
        own = text.replace(plotly_js(), "")
        assert len(own) < LIMIT, name
        assert (
            not re.search(r"(src|href)=[\"'](?!data:|#)", own)
            and "@import" not in own
            and "http-equiv" not in own
        )


def test_figures_are_plotlys(pages: dict[str, Page]) -> None:
    """plotly's own validators take every property of every figure."""
    from plotly.graph_objects import Figure

    figures = [
        chart.figure
        for page in pages.values()
        for section in page.sections
        for chart in section.charts
    ]
    assert len(figures) > 10
    for figure in figures:
        shapes = [
            {**one, "line": {**one["line"], "color": "black"}}
            for one in figure["layout"].get("shapes", [])
        ]  # the page's colour
        Figure(figure["data"], {**figure["layout"], "shapes": shapes})


def test_bars_of_time_add_up_to_the_step(pages: dict[str, Page]) -> None:
    answer = api.recommend(api.question(**QUESTION))
    section = next(one for one in pages["recommended"].sections if one.title == "Time of a step")
    data = section.charts[0].figure["data"]
    for at, plan in enumerate(answer.search.plans):  # type: ignore[union-attr]
        assert sum(bar["x"][at] for bar in data) == pytest.approx(plan.estimate.step_s, rel=1e-3)


def test_a_study_is_told_trial_by_trial_with_its_failures_switches_and_errors(
    pages: dict[str, Page], study: tuple[Path, Tuned]
) -> None:
    found, page = study[1], {one.title: one for one in pages["tuned"].sections}
    grid = page["Trials"].grid
    assert grid is not None and len(grid.rows) == len(found.rows) > 8
    errors = dict(
        zip(
            (row[0] for row in grid.rows),
            (row[grid.head.index("error")] for row in grid.rows),
            strict=True,
        )
    )
    one = next(one for one in found.rows if one.state == "done")
    assert (
        errors[f"#{one.number}"]
        == f"{100 * (one.predicted_s - one.measured_s) / one.measured_s:+.1f}%"
    )  # type: ignore[operator]
    failures = page["What failed, and why"]
    assert failures.grid is not None
    assert [row[1::2] for row in failures.grid.rows] == [
        ("oom", "rank 3 ran out of memory"),
        ("crashed", "rank 1 exited with code 3"),
    ]
    assert failures.more[0].lines[0][1].startswith("torch.OutOfMemoryError")
    best = page["The best so far"].charts[0].figure["data"][1]
    assert best["y"] == sorted(best["y"], reverse=True) and best["y"][-1] == pytest.approx(
        found.best.measured_s, rel=0.01
    )  # type: ignore[union-attr]
    assert found.best is not None and any(one.switches for one in found.rows)
    assert any("% of #" in line for line in page["Switches"].lines), page["Switches"].lines
    factors = page["The corrected profile"].grid
    assert factors is not None and {row[0] for row in factors.rows} == found.overlay.factors.keys()
    assert "No trial ran to its end." in pages["all failed"].lead


def test_the_page_and_the_terminal_say_the_same_of_the_fit(study: tuple[Path, Tuned]) -> None:
    found = study[1]
    fitted = found.overlay
    assert (
        fitted is not None
        and f"{found.error:.1%} (median); {fitted.error_after:.1%} with" in printed(found)
    )
    section = {one.title: one for one in tune.page(found).sections}["The corrected profile"]
    assert (
        f"median error {found.error:.1%} before, {fitted.error_after:.1%} after" in section.lines[0]
    )
    kept = replace(found, overlay=None, overlay_reason="it stays as it is: no better")
    assert {one.title: one for one in tune.page(kept).sections}["The profile"].lines == (
        "it stays as it is: no better.",
    )
    assert "Profile: it stays as it is: no better." in printed(kept)


def printed(found: Tuned) -> str:
    out = StringIO()
    Console(width=1000, file=out).print(terminal.text(found))
    return out.getvalue()


def test_a_calibration_shows_every_measurement_beside_the_fit(pages: dict[str, Page]) -> None:
    """The measurements were made with rates that the forms can express: what the profile gives must
    be what was measured.
    """
    page = {one.title: one for one in pages["calibrated"].sections}
    assert {
        "Products of matrices",
        "Attention",
        "Memory",
        "Collectives and messages",
    } <= page.keys()
    for title, kinds in (
        ("Products of matrices", {"fp32"}),
        ("Attention", {"forward", "backward"}),
    ):
        grid = page[title].more[0].grid
        assert grid is not None and {row[0] for row in grid.rows} == kinds
        assert max(abs(float(row[-1].rstrip("%"))) for row in grid.rows) < 3
    links = page["Collectives and messages"].more[0].grid
    assert links is not None and {row[0] for row in links.rows} == {
        "all gather",
        "reduce scatter",
        "all reduce",
        "send recv",
    }
    assert max(abs(float(row[-1].rstrip("%"))) for row in links.rows if row[0] != "send recv") < 3
    assert pages["not calibrated"].sections[0].lines == ("after 600 s.",)


def test_a_processor_that_is_slower_in_bf16_gets_a_page_too(tmp_path: Path) -> None:
    """Its profile has no peak of bf16, so that what was measured in it is compared with nothing."""
    result = made()
    result["gemm"] += [
        row | {"precision": "bf16", "seconds": 4 * row["seconds"]} for row in result["gemm"]
    ]
    (tmp_path / "result.json").write_text(json.dumps(result))
    page = calibrate.page(
        api.calibrate(out=tmp_path / "here.yaml", measured=tmp_path / "result.json")
    )
    grid = next(one for one in page.sections if one.title == "Products of matrices").more[0].grid
    assert grid is not None and {row[0] for row in grid.rows} == {"fp32"}


def test_what_users_write_stays_text() -> None:
    bad = "</script><img src=x onerror=alert(1)>"
    chart = Chart({"data": [{"type": "bar", "name": bad, "x": [1], "y": [1]}], "layout": {}}, bad)
    text = html(
        Page(bad, (bad,), ((bad, bad),), (Section(bad, (bad,), Grid((bad,), ((bad,),)), (chart,)),))
    )
    own = text.replace(plotly_js(), "")
    assert "<img" not in own
    shown: Any = re.search(r"data-chart=\"chart-0\">(.*?)</script>", own, re.DOTALL)
    assert json.loads(shown[1])["data"][0]["name"] == bad


def test_every_number_of_the_plans_table_has_its_unit(pages: dict[str, Page]) -> None:
    head = next(one.grid.head for one in pages["recommended"].sections if one.title == "Plans")
    assert {"step, s", "TFLOP/s a GPU", "memory, GiB"} <= set(head)


@pytest.mark.parametrize(("path", "says"), [("a.txt", ".html"), ("no/such/x.html", "")])
def test_faulty_report_paths_are_asked_before_the_work(
    ppplan: Any, tmp_path: Path, path: str, says: str
) -> None:
    (tmp_path / "no").write_text("a file")
    ran = ppplan(
        "recommend", "--model", "llama3-8b", "--gpus", "8", "--report", str(tmp_path / path)
    )
    assert ran.code == 2 and says in ran.err and ran.out == ""


def test_check_names_the_place_of_every_value(pages: dict[str, Page]) -> None:
    """The script's own line of a flag, its variable and what is a default stand behind clicks."""
    section = next(
        one for one in pages["checked"].sections if one.title == "Where every value comes from"
    )
    rows = {row[0]: row[1:] for more in section.more for row in more.grid.rows}
    assert rows["hidden_size"][0] == "8192" and "--hidden-size" in rows["hidden_size"][1]
    said = [line for one in pages["checked"].sections for line in one.lines]
    assert any(line.startswith("fp32 training") and "--bf16" in line for line in said)
    assert {"Memory by stage", "Time of a step"} <= {one.title for one in pages["checked"].sections}
