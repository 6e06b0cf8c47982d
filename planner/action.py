"""Orders of pipeline work: arrays inside, text at the edge.

An action is one row (stage, kind, microbatch, pair). The text is torch's notation: `2F0` is the
forward of microbatch 0 on stage 2, `(1F4;6B2)` an overlapped pair that starts and ends as one
(torch writes `(1F4;6B2)OVERLAP_F_B` in its CSV; both are read).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError

Ints = NDArray[np.int32]

KINDS = "FBIW"
F, B, I, W = range(4)  # noqa: E741
"""Forward, fused backward, input gradient, weight gradient."""
STAGE, KIND, MICROBATCH, PAIR = range(4)
"""Columns of an action row; pair 1 = starts together with the next row and ends together with it.
"""

_ACTION = re.compile(r"(\d{1,6})([FBIW])(\d{1,7})\Z")
_COMMUNICATION = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d*\Z")
_TOKEN = re.compile(r"\([^()]*\)[A-Z_]*|[^\s,()]+")
_LABEL = re.compile(r"\s*rank\s+\d+\s*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Order:
    """What every rank does, in order, and where the stages live."""

    actions: tuple[Ints, ...]
    """One int32 array (n, 4) a rank: stage, kind, microbatch, pair."""
    rank_of_stage: Ints
    """(S,)"""
    previous_stage: Ints
    """(S,) the stage that feeds this one; -1 where a chain starts (DualPipe has two chains)."""

    @property
    def ranks(self) -> int:
        return len(self.actions)

    @property
    def stages(self) -> int:
        return len(self.rank_of_stage)

    @property
    def next_stage(self) -> Ints:
        """(S,) the stage that this one feeds; -1 where a chain ends."""
        following = np.full(self.stages, -1, np.int32)
        fed = np.flatnonzero(self.previous_stage >= 0)
        following[self.previous_stage[fed]] = fed
        return following


def looped(p: int, v: int = 1) -> tuple[Ints, Ints]:
    """Placement (rank_of_stage, previous_stage): stage s on rank s mod p, one chain of p*v
    stages.
    """
    stages = np.arange(p * v, dtype=np.int32)
    return stages % p, stages - 1


def v_shaped(p: int) -> tuple[Ints, Ints]:
    """Placement: stage s on rank s, and on 2p-1-s on the way back; one chain of 2p stages."""
    stages = np.arange(2 * p, dtype=np.int32)
    return np.minimum(stages, 2 * p - 1 - stages), stages - 1


def two_way(p: int) -> tuple[Ints, Ints]:
    """Placement of DualPipe: chain 0..p-1 (stage s on rank s) and chain p..2p-1 (stage p+s on rank
    p-1-s).
    """
    stages = np.arange(2 * p, dtype=np.int32)
    previous = stages - 1
    previous[p] = -1
    return np.minimum(stages, 2 * p - 1 - stages), previous


def from_rows(
    rows: Sequence[Iterable[tuple[int, int, int] | tuple[int, int, int, int]]],
    placement: tuple[Ints, Ints],
) -> Order:
    """An order from one list a rank of (stage, kind, microbatch) or (stage, kind, microbatch,
    pair).
    """
    arrays = tuple(
        np.array([(*row, 0)[:4] for row in rank], np.int32).reshape(-1, 4) for rank in rows
    )
    return Order(arrays, *placement)


def tokens(rows: Ints, suffix: str = "") -> list[str]:
    """The text of each action of a rank; a pair is one token. `suffix` follows a pair's bracket."""
    out: list[str] = []
    opened = ""
    for stage, kind, microbatch, pair in rows.tolist():
        word = f"{stage}{KINDS[kind]}{microbatch}"
        if pair:
            opened = f"({word};"
            continue
        out.append(f"{opened}{word}){suffix}" if opened else word)
        opened = ""
    return out


def to_text(order: Order) -> str:
    """One line a rank, actions separated by spaces."""
    return "\n".join(" ".join(tokens(rows)) for rows in order.actions) + "\n"


def to_csv(order: Order) -> str:
    """torch's CSV: one line a rank, one action a cell."""
    return "\n".join(",".join(tokens(rows, "OVERLAP_F_B")) for rows in order.actions) + "\n"


def grid(order: Order, marks: dict[int, int] | None = None, around: int = 6) -> str:
    """One labelled line a rank; with marks (rank -> row), only the actions around the marked ones,
    each marked `>0B0<`.
    """
    lines = []
    for rank, rows in enumerate(order.actions):
        at = None if marks is None else marks.get(rank, len(rows))
        first, last = (0, len(rows)) if at is None else (max(0, at - around), at + around)
        words = [
            f"{s}{KINDS[k]}{j}{'+' if pair else ''}" for s, k, j, pair in rows[first:last].tolist()
        ]
        if at is not None and at < len(rows):
            words[at - first] = f">{words[at - first]}<"
        before, after = "... " if first else "", " ..." if last < len(rows) else ""
        lines.append(f"rank {rank}: {before}{' '.join(words)}{after}".rstrip())
    return "\n".join(lines)


def from_text(text: str, previous_stage: Ints | None = None) -> Order:
    """Reads an order: one line a rank, actions separated by spaces or commas (torch's CSV), empty
    cells are idle steps.

    A line may start with a label, `rank 0:`. Communication and sharding actions of torch's lowered
    tables are passed over: they follow from the order. Stages form one chain 0, 1, 2, ... unless
    previous_stage says otherwise. Raises InputError.
    """
    lines = [_LABEL.sub("", line) for line in text.splitlines() if line.strip()]
    ranks = [_read_line(line, rank) for rank, line in enumerate(lines)]
    actions = tuple(np.array(rows, np.int32).reshape(-1, 4) for rows in ranks)
    rank_of_stage = _where_stages_live(actions)
    if previous_stage is None:
        previous_stage = np.arange(len(rank_of_stage), dtype=np.int32) - 1
    if len(previous_stage) != len(rank_of_stage):
        raise InputError(
            f"previous_stage must have one entry a stage, but got {len(previous_stage)} for"
            f" {len(rank_of_stage)} stages"
        )
    return Order(actions, rank_of_stage, previous_stage)


def _read_line(line: str, rank: int) -> list[tuple[int, int, int, int]]:
    rows: list[tuple[int, int, int, int]] = []
    position = 0
    for match in _TOKEN.finditer(line):
        _nothing_between(line[position : match.start()], rank)
        position = match.end()
        rows += _read_token(match.group(), rank)
    _nothing_between(line[position:], rank)
    return rows


def _nothing_between(gap: str, rank: int) -> None:
    if gap.replace(",", "").strip():
        raise InputError(
            f"an order line must hold actions such as 2F0 or (1F4;6B2), but rank {rank} has an"
            f" unmatched {gap.strip()[:40]!r}"
        )


def _read_token(token: str, rank: int) -> list[tuple[int, int, int, int]]:
    if _COMMUNICATION.match(token):
        return []
    if not token.startswith("("):
        return [(*_read_action(token, rank), 0)]
    inner, _, suffix = token[1:].partition(")")
    words = [word.strip() for word in inner.split(";")]
    if suffix not in ("", "OVERLAP_F_B") or len(words) != 2:
        raise InputError(
            f"a pair must read (1F4;6B2) or (1F4;6B2)OVERLAP_F_B, but rank {rank} has"
            f" {token[:60]!r}"
        )
    return [(*_read_action(words[0], rank), 1), (*_read_action(words[1], rank), 0)]


def _read_action(word: str, rank: int) -> tuple[int, int, int]:
    match = _ACTION.match(word)
    if not match:
        raise InputError(
            f"an action must read <stage><F|B|I|W><microbatch>, such as 2F0, but rank {rank} has"
            f" {word[:40]!r}"
        )
    stage, kind, microbatch = match.groups()
    return int(stage), KINDS.index(kind), int(microbatch)


def _where_stages_live(actions: tuple[Ints, ...]) -> Ints:
    """(S,) the rank of each stage; every stage must be on one rank, and none may be missing."""
    owner: dict[int, int] = {}
    for rank, rows in enumerate(actions):
        for stage in np.unique(rows[:, STAGE]).tolist():
            if owner.setdefault(stage, rank) != rank:
                raise InputError(
                    f"a stage must live on one rank, but stage {stage} is on ranks {owner[stage]}"
                    f" and {rank}"
                )
    if not owner:
        raise InputError("an order must hold at least one action, but got none")
    missing = [stage for stage in range(min(max(owner), len(owner)) + 1) if stage not in owner]
    if missing:
        raise InputError(
            f"stages must be numbered 0, 1, 2, ... without a gap, but stage {missing[0]} has no"
            " action"
        )
    return np.array([owner[stage] for stage in range(len(owner))], np.int32)
