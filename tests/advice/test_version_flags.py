"""Flags of other versions are refused where the parser of the stated version refuses them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from planner.intake.frameworks.megatron_flags import Flag, flags
from planner.specs.versions import version_of
from tests.advice.test_versions import checked, is_absent
from tests.judges import megatron_oracle

WHEELS = {"0.17": "0.17.1", "0.18": "0.18.0", "0.19": "0.19.2"}


def drawn(seed: int) -> list[Flag]:
    """Switches and texts, of all versions and of some alone."""
    plain = [flag for flag in flags().values() if flag.kind == "true" and flag.first[:1] == "0"]
    some = [flag for flag in plain if flag.first != "0.14" or flag.last != "main"]
    chance = random.Random(seed)
    return chance.sample(some, 24) + chance.sample(plain, 8)


@pytest.mark.parametrize("version", WHEELS)
def test_a_flag_is_refused_where_the_parser_of_the_version_does_not_know_it(
    tmp_path: Path, version: str
) -> None:
    number = version_of("megatron", version)
    lines = [f"--{flag.name.replace('_', '-')}" for flag in drawn(int(number[1]))]
    known = megatron_oracle.parsed([[line] for line in lines], WHEELS[version])
    assert 4 < sum(known) < len(lines) - 2
    wrong = []
    for line, is_known in zip(lines, known, strict=True):
        answer = checked(tmp_path, line, f"software=megatron-core@{version}")
        if is_absent(answer) == is_known or (not is_known and answer.verdict != "invalid"):
            wrong.append(line)
    assert wrong == []
