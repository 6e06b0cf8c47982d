"""The arguments that Megatron-LM and Megatron-DeepSpeed take: facts in megatron_arguments.csv.

Source: [megatron-core] training/arguments.py, whose parsers of 0.17.1, 0.18 and 0.19.2 were built
for what each flag takes, and Megatron-DeepSpeed's megatron/arguments.py, whose declarations were
read. Of 63 flags that are only in the main branch or were gone before 0.17 the kind follows from
the name. `first` and `last` are versions, `main` the newest; a row without `first` is of the years
before 0.9. `choices` are the words that a flag takes, as the parsers of 0.14 to 0.19 say
(`python -m tests.judges.value_tables`): `a|b>=0.18|c<0.16`; none where it takes any.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from planner.specs.versions import Version

ALWAYS = ("main", "0.19")
TABLE = Path(__file__).with_name("megatron_arguments.csv")


class Flag(NamedTuple):
    """One flag."""

    name: str
    """With underscores, without dashes."""
    dest: str
    """The Reading's name: the flag's own, or of `--no-x` and `--disable-x` what it switches off."""
    kind: str
    """true or false (a switch), int, float, str, any."""
    many: bool
    optional: bool
    first: str
    last: str
    choices: str = ""
    """As the table writes them."""

    def choices_in(self, version: Version) -> tuple[str, ...]:
        """The words that it takes in a version; none where it takes any."""
        words = []
        for cell in self.choices.split("|"):
            word, since, before = CHOICE.fullmatch(cell).groups()  # type: ignore[union-attr]
            if word and _number(since or "") <= version < _number(before or "main"):
                words.append(word)
        return tuple(words)

    def is_in(self, version: Version) -> bool:
        """Whether the parser of a version takes it."""
        return _number(self.first)[:2] <= version and version <= _number(self.last)

    @property
    def versions(self) -> str:
        """Those that have it, in words: `since 0.16`, `up to 0.17`."""
        since = "" if self.first in ("", "0.14") else f"since {self.first}"
        until = "" if self.last in ALWAYS else f"up to {self.last}"
        return f"{since} {until}".strip()


CHOICE = re.compile(r"([^<>]*)(?:>=([0-9.]+))?(?:<([0-9.]+))?")


@cache
def flags() -> dict[str, Flag]:
    """All of them, by the flag as Megatron spells it."""
    out: dict[str, Flag] = {}
    with TABLE.open(newline="") as stream:
        for row in csv.DictReader(stream):
            name = row["flag"].lstrip("-").replace("-", "_")
            kind, dest = row["kind"], row["dest"] or name
            many, optional = kind.endswith("+"), kind.endswith("?")
            out[row["flag"]] = Flag(
                name,
                dest,
                kind.rstrip("+?"),
                many,
                optional,
                row["first"],
                row["last"],
                row["choices"],
            )
    return out


def deepspeed_only(flag: Flag) -> bool:
    """Whether only Megatron-DeepSpeed takes it."""
    return flag.first == "megatron-deepspeed"


def stated_as(name: str, where: str) -> Flag | None:
    """The flag that states a value of a name: the one that its place names
    (`train.sh:12 --seq-length`), else the argument's own.
    """
    known = flags()
    for word in re.findall(r"--[\w-]+", where):
        flag = known.get(word) or known.get(word.replace("_", "-"))
        if flag is not None and flag.dest == name:
            return flag
    own = known.get("--" + name.replace("_", "-"))
    return own if own is not None and own.dest == name else None


def version(used: Iterable[Flag]) -> tuple[str | None, str]:
    """The newest version that takes all flags where that is not simply the newest, and a note where
    no version does.
    """
    own = [flag for flag in used if not deepspeed_only(flag)]
    ended = [flag for flag in own if flag.last not in ALWAYS]
    if not ended:
        return None, ""
    oldest = min(ended, key=lambda flag: _number(flag.last))
    newest = max(own, key=lambda flag: _number(flag.first))
    if _number(newest.first) > _number(oldest.last) and newest.first not in ("", "0.14"):
        return oldest.last, (
            f"no version takes both --{_dashed(oldest)} (up to {oldest.last}) and"
            f" --{_dashed(newest)} (from {newest.first})"
        )
    return oldest.last, f"Megatron-LM {oldest.last}: the newest with --{_dashed(oldest)}"


def _dashed(flag: Flag) -> str:
    return flag.name.replace("_", "-")


def _number(text: str) -> tuple[int, ...]:
    if text == "main":
        return (99,)
    return tuple(int(part) for part in text.split(".") if part.isdigit())
