"""The README: its commands run, and what it shows of their output is what they print.
PPPLAN_WRITE_README=1 shows it anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from planner.cli import app, code
from planner.specs import library

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
MEASURE = ("calibrate", "tune")
"""They take minutes and devices: the parser reads them here, tests/calibrate and tests/tune run
them.
"""
PICTURE = "recipes/pictures/zb-h1.svg"


class Block(NamedTuple):
    """A code block; note is of the comment before it. file=NAME: it lies there for the commands
    below; until=WORDS: output up to them.
    """

    note: str
    language: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    return (Block(one["note"] or "", one["language"], one["text"]) for one in BLOCK.finditer(text))


def shown(output: str, note: str) -> str:
    """What the README shows of an output: to the line that begins with the words of `until=`,
    without spaces at line ends.
    """
    lines = "\n".join(line.rstrip() for line in output.splitlines()).strip("\n").splitlines()
    last = note.partition("until=")[2]
    if last:
        end = next(at for at, line in enumerate(lines) if line.startswith(last))
        lines = [*"\n".join(lines[:end]).rstrip("\n").splitlines(), "..."]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, int, str, str]]]:
    """Every command of the page that measures nothing, in order, in one folder: command, exit code,
    stdout, stderr.
    """
    place, found = tmp_path_factory.mktemp("readme"), []
    shutil.copytree(ROOT / "recipes", place / "recipes")
    shutil.copy(
        ROOT / "hardware_profiles" / "l40s-pcie.yaml", place / "here.yaml"
    )  # in place of the one that calibrate writes
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(library, "local_gpus", lambda: ())
        for block in blocks(README.read_text()):
            if block.note.startswith("file="):
                Path(block.note.removeprefix("file=")).write_text(block.text)
            found += [
                answered(command, place)
                for command in commands(block)
                if command.split()[1] not in MEASURE
            ]
        yield found


def commands(block: Block) -> list[str]:
    """The lines that call ppplan; in the first block it is the last of three commands."""
    return (
        re.findall(r"^(?:python3 .*\.venv/bin/)?(ppplan .*)$", block.text, re.MULTILINE)
        if block.language == "bash"
        else []
    )


def answered(command: str, place: Path) -> tuple[str, int, str, str]:
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        result = code(shlex.split(command, comments=True)[1:])
    if PICTURE in command:
        shutil.copy(place / PICTURE, place / "picture.svg")
    return command, result, out.getvalue(), err.getvalue()


def test_it_begins_with_the_two_commands() -> None:
    first, second = [
        block.text.strip() for block in blocks(README.read_text()) if block.language == "bash"
    ][:2]
    assert (
        first.startswith("python3 -m venv")
        and first.endswith("ppplan recommend --model llama3-70b --gpus 32")
        and "\n" not in first
    )
    assert (
        second.startswith("python3 -m venv")
        and "-c constraints.txt" in second
        and "pytest" in second
        and "\n" not in second
    )


def test_commands_run(ran: list[tuple[str, int, str, str]]) -> None:
    assert len(ran) >= 20
    for command, result, out, err in ran:
        assert result == (1 if "exit code 1" in command else 0), command
        assert out and (not err or err.startswith("report: ")), command


def test_outputs_are_true(ran: list[tuple[str, int, str, str]]) -> None:
    """A text block shows the output of the last command above it."""
    outputs, last = {command: out for command, _, out, _ in ran}, ""

    def anew(found: re.Match[str]) -> str:
        nonlocal last
        block = Block(found["note"] or "", found["language"], found["text"])
        last = (commands(block) or [last])[-1]
        before = found[0].removesuffix(block.text + "```")
        return (
            f"{before}{shown(outputs[last], block.note)}```"
            if block.language == "text"
            else found[0]
        )

    text = README.read_text()
    fresh = BLOCK.sub(anew, text)
    if os.environ.get("PPPLAN_WRITE_README"):
        README.write_text(fresh)
        shutil.copy(Path("picture.svg"), ROOT / PICTURE)
    assert fresh == README.read_text() and text.count("```text") >= 4


def test_the_picture_is_what_its_command_draws(ran: list[tuple[str, int, str, str]]) -> None:
    assert (
        "![" in README.read_text()
        and (ROOT / PICTURE).read_text() == Path("picture.svg").read_text()
    )


def test_commands_that_measure_are_read_by_their_parser() -> None:
    asked = [
        command
        for block in blocks(README.read_text())
        for command in commands(block)
        if command.split()[1] in MEASURE
    ]
    assert {command.split()[1] for command in asked} == set(MEASURE)
    group: Any = typer.main.get_command(app())
    for command in asked:
        name, *rest = shlex.split(command, comments=True)[1:]
        group.commands[name].make_context(name, rest)


def test_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(README.read_text()):
        if block.language == "python":
            exec(compile(block.text, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("tp 8 pp 2 ") and printed.endswith("0.2727272727272727\n")


def test_links_lead_somewhere() -> None:
    links = [one for one in re.findall(r"\]\(([^)#]+)\)", README.read_text()) if "://" not in one]
    assert links and not [one for one in links if not (ROOT / one).exists()]


def test_what_articles_get_wrong_by_hand() -> None:
    """(p-1)/(v m+p-1), a third of it for ZB-H1, messages p v-1 each way, m above 9 (p-1): the
    figures of that table.
    """
    p, m, v = 4, 8, 2
    text = README.read_text().split("## What popular articles get wrong")[1].split("\n## ")[0]
    bubbles = [(p - 1) / (m + p - 1), (p - 1) / (v * m + p - 1), (p - 1) / (3 * m + p - 1)]
    assert all(f"{share:.1%}" in text for share in bubbles)
    assert f"{2 * m * (p * v - 1)} messages instead of {2 * m * (p - 1)}" in text
    assert f"at p 16, {9 * 15 + 1} and not {8 * 16}" in text
