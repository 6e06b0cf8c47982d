"""Stable patterns of V-shaped schedules: when, in slots of one sixth of a microbatch's work, each
chunk's turn comes.

A rank has a forward, an input gradient and a weight gradient of two chunks to do for each
microbatch: six slots. A pattern says in which slot each forward and input gradient of microbatch 0
is due; every next microbatch is due one period later. How long a chunk lies between its forward and
its gradient is the memory it takes.

Source: [qi2024 sec. 3] for the building block, and for the steps of V-Min (1, 1) and V-Half (2, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, zip_longest

from planner.action import F, I

PERIOD = 6
"""Slots of one microbatch on a rank: three kinds of two chunks."""
STEPS = (
    (1, 2, 1, 2),
    (3, 3, 3, 3),
    (2, 1.5, 2, 1.5),
    (1, 1, 2, 1),
    (1, 1, 1, 1),
    (3, 2, 3, 2),
    (2, 2, 2, 2),
    (2, 1, 2, 1),
    (1, 2, 2, 2),
)
"""Slots from one rank to the next: forwards down the V and up, input gradients down and up."""
RESTS = ((1, 2), (2, 2), (3, 0), (1, 0), (3, 1), (0, 0), (4, 0), (2, 0), (0, 1))
"""Pause and turn, those first that served best where transfers take time."""
KEPT = 4
"""Patterns of one kind of steps where they take none: the fewest conflicts decide."""

Lane = tuple[int, int]
"""Stage and kind."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A stable pattern of p ranks and 2p stages."""

    p: int
    steps: tuple[float, float, float, float]
    pause: float
    """Slots that microbatch 0 rests before its first input gradient."""
    turn: float
    """Slots that its gradient rests on the last rank, between its two chunks."""
    period: int = PERIOD


def slots(pattern: Pattern) -> list[tuple[float, float, float, float]]:
    """Per rank, the slots of microbatch 0: forward down, forward up, input gradient down, input
    gradient up.
    """
    down, up, back_down, back_up = pattern.steps
    last = pattern.p - 1
    top = last * down + 1
    back = top + last * up + 1 + pattern.pause
    bottom = back + last * back_down + 1 + pattern.turn
    return [
        (
            rank * down,
            top + (last - rank) * up,
            back + rank * back_down,
            bottom + (last - rank) * back_up,
        )
        for rank in range(pattern.p)
    ]


def peak(pattern: Pattern) -> float:
    """The most forwards without their input gradient that a rank has, in the steady state."""
    return max(_peak(due, pattern.period) for due in slots(pattern))


def _peak(due: tuple[float, float, float, float], period: int) -> float:
    chunks = ((due[0], due[3]), (due[1], due[2]))
    return max(
        sum((now - begin) // period - (now - end) // period for begin, end in chunks)
        for now in due[:2]
    )


def conflicts(pattern: Pattern) -> int:
    """Slots that are due twice on one rank; each delays something."""
    return sum(4 - len({slot % pattern.period for slot in due}) for due in slots(pattern))


def length(pattern: Pattern) -> float:
    """Slots from the first forward of a microbatch to its last input gradient."""
    return slots(pattern)[0][3] + 1


def fitting(p: int, m: int, limit: float, hop: float = 0.0) -> list[Pattern]:
    """Patterns that the memory allows, alternating between kinds of steps.

    hop: slots that a transfer takes; there are kinds with all, half or none of it added to their
    steps. Where the limit is too small for the period, longer ones are tried until one fits: at two
    activations a rank, one microbatch at a time.
    """
    period = PERIOD
    while True:
        kinds = [
            _of_steps(p, steps, late, period)
            for late in dict.fromkeys((0.5 * hop, hop, 0.0))
            for steps in STEPS
        ]
        allowed = [
            [each for each in kind if min(peak(each), 2 * m) <= limit + 1e-9] for kind in kinds
        ]
        if any(allowed):
            kept = allowed if hop else [kind[:KEPT] for kind in allowed]
            return [each for nth in zip_longest(*kept) for each in nth if each]
        period += max(1, period // 6)


def _of_steps(p: int, steps: tuple[float, ...], late: float, period: int) -> list[Pattern]:
    down, up, back_down, back_up = (step + late for step in steps)
    if late:
        return [
            Pattern(p, (down, up, back_down, back_up), pause, turn, period) for pause, turn in RESTS
        ]
    every = [
        Pattern(p, (down, up, back_down, back_up), pause, turn, period)
        for pause, turn in product(range(PERIOD), range(3))
    ]
    return sorted(every, key=lambda each: (conflicts(each), length(each)))


def lanes(pattern: Pattern, m: int) -> list[list[Lane]]:
    """Per rank, the (stage, kind) of m microbatches in the order in which they are due; at a tie
    what frees memory comes first.
    """
    out = []
    for rank, due in enumerate(slots(pattern)):
        back = 2 * pattern.p - 1 - rank
        kinds = (
            (due[3], 0, (rank, I)),
            (due[2], 1, (back, I)),
            (due[1], 2, (back, F)),
            (due[0], 3, (rank, F)),
        )
        turns = sorted(
            (slot + pattern.period * j, tie, lane) for slot, tie, lane in kinds for j in range(m)
        )
        out.append([lane for _, _, lane in turns])
    return out
