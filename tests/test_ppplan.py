"""The public face: `import ppplan`, typed words, answers as text, documents, tables and HTML."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer

import ppplan
from planner import api
from planner.answers import Recommendation
from planner.cli import app, code
from planner.specs.words import CalibrateWords, QuestionWords, SimulateWords, TuneWords

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parent.parent
WORDS: dict[str, Any] = {"model": "llama3-70b", "gpus": 32, "cluster": "h100-sxm"}


@pytest.fixture(scope="module")
def answer() -> Recommendation:
    return ppplan.recommend(**WORDS)


def python(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def test_import_is_cheap_and_shows_the_verbs() -> None:
    said = python("import sys, ppplan; print(dir(ppplan)); print(*sys.modules)")
    shown, loaded = said.splitlines()
    assert "'recommend'" in shown and "'math'" not in shown
    assert not set(loaded.split()) & {"numpy", "pandas", "pydantic", "yaml", "typer", "rich"}


def test_names() -> None:
    assert set(ppplan.__all__) == {*api.__all__, "__version__"}
    assert all(getattr(ppplan, name) is getattr(api, name) for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'recomend'"):
        _ = ppplan.recomend  # type: ignore[attr-defined]


def test_words_question_and_file_give_one_answer(answer: Recommendation, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: llama3-70b\ngpus: 64\ncluster: h100-sxm\n")
    for same in (
        api.recommend(api.question(**WORDS)),
        ppplan.recommend(ppplan.question(model="llama3-70b", gpus=8), gpus=32, cluster="h100-sxm"),
        ppplan.recommend(recipe, gpus=32),
    ):
        assert same.best == answer.best and same.plans == answer.plans


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"gpus": 8}, "a model must be stated"),
        ({**WORDS, "gpus": "64"}, "gpus must be a whole number, but got the text '64'"),
        ({**WORDS, "pp": [1, 2]}, "pp must be a whole number or a range such as 1..8, but got a"),
        ({**WORDS, "pp": 1.5}, "pp must be a whole number or a range such as 1..8, but got 1.5"),
        ({**WORDS, "tpp": 8}, "tpp is not a field; did you mean tp?"),
    ],
)
def test_faulty_words(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ppplan.InputError, match=re.escape(message)):
        ppplan.recommend(**words)


ONLY_PRINTED = {"as_json", "report", "csv", "formulas", "no_recompute", "order", "gantt", "trace"}
"""Options for what the command prints or writes of an answer."""
NAMED = {
    "recommend": {"file": "question"},
    "explain": {"file": "question", "sweep": "question"},
    "compare": {},
    "simulate": {},
    "check": {},
    "emit": {},
    "tune": {},
    "calibrate": {},
    "validate": {"out": "files", "plot": "files", "max_error": "files"},
}
"""Options that are another parameter, or part of what one does with the answer."""
OWN_WORDS = {"simulate": SimulateWords, "tune": TuneWords, "calibrate": CalibrateWords}
"""Of the verbs that do not take the question's."""


@pytest.mark.parametrize("verb", NAMED)
def test_words_of_a_verb_are_those_of_its_command(verb: str) -> None:
    words = set(inspect.signature(getattr(api, verb)).parameters)
    if "words" in words:
        words |= OWN_WORDS.get(verb, QuestionWords).__annotations__.keys()
    group: Any = typer.main.get_command(app())
    for option in group.commands[verb].params:
        if option.name not in ONLY_PRINTED | {"help"}:
            assert NAMED[verb].get(option.name, option.name) in words


TYPED = """
import ppplan

answer = ppplan.recommend(model="llama3-70b", gpus=32, pp="1..8", top=3)
if answer.best is not None:
    reveal_type(answer.best.layout)
reveal_type(answer.to_frame())
ppplan.recommend(modell="llama3-70b")  # error
ppplan.explain(model="llama3-8b", tp=[1, 2])  # error
ppplan.simulate(schedule="1f1b", pp="four", m=8)  # error
ppplan.tune("plan.yaml", trials="ten")  # error
ppplan.calibrate(device="cpu", devises=2)  # error
ppplan.recomend(model="llama3-70b")  # error
"""


def test_a_type_checker_knows_the_words(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    wrong = {int(line) for line in re.findall(r"typed\.py:(\d+): error", done.stdout)}
    expected = {
        number for number, line in enumerate(TYPED.splitlines(), 1) if line.endswith("# error")
    }
    assert wrong == expected, done.stdout + done.stderr
    assert 'is "planner.layout.Layout[int]"' in done.stdout
    assert re.search(r'is "pandas\.[\w.]*DataFrame"', done.stdout)


def test_an_answer_is_the_document_of_the_command(
    answer: Recommendation, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--{word}={value}" for word, value in WORDS.items()]
    assert code(["recommend", *words, "--json"]) == 0
    document, said = json.loads(capsys.readouterr().out), answer.to_dict()
    for timed in (document["search"], said["search"]):
        del timed["seconds"]
    assert said == document
    assert answer.best is not None and answer.best.to_dict() == document["plans"][0]
    assert answer.best.estimate.memory_gib == document["plans"][0]["estimate"]["memory_gib"]


def test_an_answer_prints_as_the_command(
    answer: Recommendation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(["recommend", *[f"--{word}={value}" for word, value in WORDS.items()]]) == 0
    printed = capsys.readouterr().out.splitlines()
    timed = [line for line in printed if not line.startswith("Search:")]
    assert [line for line in str(answer).splitlines() if not line.startswith("Search:")] == timed
    assert len(repr(answer)) < 100 and len(repr(answer.best)) < 120


def test_frame_of_a_search(answer: Recommendation) -> None:
    """512 sequences of 8,192 tokens a step, the default batch of llama3-70b."""
    table = answer.to_frame()
    assert answer.search is not None and answer.search.computed is not None
    assert len(table) == len(answer.search.computed.step_s)
    assert set(table["schedule"]) <= {"1f1b", "interleaved"}
    assert set(table["recompute"]) == {"none", "selective", "full"}
    assert (table["tp"] * table["pp"] * table["dp"] * table["cp"] == 32).all()
    assert (table["dp"] * table["mbs"] * table["m"] == 512).all()
    rate = 512 * 8192 / 32 / table["step_s"]
    assert table["tokens_per_s_per_gpu"].to_numpy() == pytest.approx(rate.to_numpy())
    fitting = table[table["fits"]]
    assert len(fitting) >= len(answer.plans) and fitting["step_s"].is_monotonic_increasing
    for plan in answer.plans:
        row = table[table["rank"] == plan.rank].iloc[0]
        named = plan.layout.named()
        assert row["v"] == named["v"] and row["schedule"] == named["schedule"]
        # rows are under the switches of the fastest plan, the others may have fewer
        assert row["memory_gib"] == pytest.approx(plan.estimate.memory_gib, rel=0.1)


def test_frame_of_a_sweep() -> None:
    swept = ppplan.sweep(over={"v": [1, 2, 3]}, tp=8, pp=4, **WORDS)
    table, document = swept.to_frame(), swept.to_dict()["sweep"]
    assert list(table["v"]) == [1, 2, 3] and list(table["schedule"])[:2] == ["1f1b", "interleaved"]
    assert table["sp"].dtype == bool
    for (_, row), point in zip(table.iterrows(), document, strict=True):
        assert row["memory_gib"] == point["estimate"]["memory_gib"]
        assert row["time.gemm_s"] == point["estimate"]["time"]["gemm_s"]
        assert row["memory.weights_gib"] == point["estimate"]["memory"]["weights_gib"]
    assert table["breaches"].iloc[2]  # 80 layers are not 4 x 3 stages


def test_frame_of_a_comparison() -> None:
    answer = ppplan.compare(
        model="llama3-8b", gpus=8, over={"cluster": ["h100-sxm", "a100-80g-sxm"]}
    )
    table = answer.to_frame()
    assert list(table["cluster"]) == ["h100-sxm", "a100-80g-sxm"]
    assert table["step_s"].iloc[0] < table["step_s"].iloc[1]
    assert list(table["days_per_trillion_tokens"]) == [
        row["days_per_trillion_tokens"] for row in answer.to_dict()["rows"]
    ]


def test_frame_of_a_validation() -> None:
    answer = ppplan.validate(source="korthikanti2022")
    table = answer.to_frame()
    assert len(table) == answer.to_dict()["rows"]
    assert table["recompute"].dropna().isin(["none", "selective", "full"]).all()
    assert table["tp"].dtype == "Int64" and "predicted_step_s" in table


def test_html_of_an_answer(answer: Recommendation) -> None:
    """A piece of HTML with the plans, light and without a network or a script."""
    for shown in (
        answer,
        ppplan.simulate(schedule="1f1b", pp=4, m=8),
        ppplan.explain(model="llama3-8b", gpus=8, cluster="h100-sxm", tp=2),
    ):
        html = shown._repr_html_()
        assert html is not None and html.count("<table>") >= 1 and len(html) < 100_000
        assert not re.search(r"<script|src=|href=|https?://|<html|<body", html)
        assert html.count("<div") == html.count("</div>")
    assert "Why plan 1" in str(answer._repr_html_())


def test_wheel_holds_both_packages(tmp_path: Path) -> None:
    """Built and installed as pip does it, away from the checkout."""
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("ppplan-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ppplan/__init__.py", "ppplan/py.typed", "planner/py.typed"} <= names
    target = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    program = (
        "import os; os.chdir('/'); import ppplan; print(ppplan.__file__);"
        "print(ppplan.recommend(model='llama3-8b', gpus=8, cluster='h100-sxm').best.layout)"
    )
    file, layout = python(program, PYTHONPATH=str(target)).splitlines()
    assert Path(file).is_relative_to(target) and layout.startswith("tp ")
