"""Reads a text as a configuration, and compares what it states."""

from __future__ import annotations

from pathlib import Path

from planner.intake.frameworks import detect
from planner.intake.reading import Reading


def plain(reading: Reading) -> dict:
    return {name: one.value for name, one in reading.values.items()}


def read(folder: Path, name: str, text: str, **options) -> Reading:
    (folder / name).write_text(text)
    return detect.read(folder / name, **options)


def stated(reading: Reading, expected: dict) -> None:
    found = plain(reading)
    assert {name: found.get(name) for name in expected} == expected
