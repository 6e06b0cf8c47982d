"""What a Gantt chart shows, whatever draws it: bars on rows, from a simulated order or a
forward-only pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.action import KIND, KINDS, MICROBATCH, PAIR, STAGE, Order
from planner.errors import InputError
from planner.pipeline.serving.passage import Passage
from planner.simulator import Timeline

KIND_NAMES = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
    "P": "prefill",
    "D": "decode",
}
COLOURS = {
    "F": (76, 120, 168),
    "B": (84, 162, 75),
    "I": (114, 183, 178),
    "W": (245, 133, 24),
    "P": (76, 120, 168),
    "D": (160, 106, 172),
}
"""Red, green, blue; the ink on them is white or black by brightness."""
MAX_BARS = 100_000
LIGHTER = "lighter: a later chunk of the rank"


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars in columns, one entry a bar."""

    title: str
    note: str
    row_name: str
    """What a row is: rank, stage."""
    rows: int
    makespan: float
    unit: str
    """Of the times: ms, s, or nothing."""
    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    """One letter of KIND_NAMES."""
    label: np.ndarray
    """Micro-batch or batch."""
    shade: np.ndarray
    """0 for the first chunk of a rank, 1 for the next, ...: lighter."""
    half: np.ndarray
    """0 full height; 1 upper, 2 lower half: the two of an overlapped pair."""
    name: np.ndarray
    """Words for a tooltip."""


def of_timeline(order: Order, timeline: Timeline, title: str, note: str, unit: str = "") -> Chart:
    """The chart of a training schedule; seconds become milliseconds."""
    rows = np.concatenate(order.actions)
    _few_enough(len(rows))
    second = np.concatenate(
        [np.concatenate(([0], actions[:-1, PAIR])) for actions in order.actions]
    )
    stage, kind, microbatch = rows[:, STAGE], rows[:, KIND], rows[:, MICROBATCH]
    scale, unit = (1e3, "ms") if unit == "s" else (1.0, unit)
    return Chart(
        title=title,
        note=note,
        row_name="rank",
        rows=order.ranks,
        makespan=timeline.makespan * scale,
        unit=unit,
        row=np.repeat(np.arange(order.ranks), [len(actions) for actions in order.actions]),
        start=np.concatenate(timeline.start) * scale,
        end=np.concatenate(timeline.end) * scale,
        kind=np.array(list(KINDS))[kind],
        label=microbatch,
        shade=_chunks(order)[stage],
        half=np.where(rows[:, PAIR] > 0, 1, np.where(second > 0, 2, 0)),
        name=np.array(
            [
                f"{s}{KINDS[k]}{j}"
                for s, k, j in zip(stage.tolist(), kind.tolist(), microbatch.tolist(), strict=True)
            ]
        ),
    )


def of_passage(passage: Passage, decodes: np.ndarray, title: str, note: str) -> Chart:
    """The chart of a forward-only pipeline; decodes (batches,) tells which hold decode work
    alone.
    """
    batches, stages = passage.starts.shape
    _few_enough(batches * stages)
    batch = np.repeat(np.arange(batches), stages)
    stage = np.tile(np.arange(stages), batches)
    return Chart(
        title=title,
        note=note,
        row_name="stage",
        rows=stages,
        makespan=passage.makespan,
        unit="ms",
        row=stage,
        start=passage.starts.ravel(),
        end=passage.ends.ravel(),
        kind=np.where(decodes[batch], "D", "P"),
        label=batch,
        shade=np.zeros(batches * stages, int),
        half=np.zeros(batches * stages, int),
        name=np.array([f"batch {k}" for k in batch]),
    )


def kinds_shown(chart: Chart) -> list[str]:
    """The kinds that occur, in the order of KIND_NAMES."""
    there = set(np.unique(chart.kind).tolist())
    return [kind for kind in KIND_NAMES if kind in there]


def colour(kind: str, shade: int) -> tuple[int, int, int]:
    """Red, green, blue of a bar; later chunks of a rank are lighter, up to two thirds of the way to
    white.
    """
    paler = 2 / 3 * (1 - 0.6**shade)
    red, green, blue = (round(c + (255 - c) * paler) for c in COLOURS[kind])
    return red, green, blue


def ink(rgb: tuple[int, int, int]) -> tuple[int, int, int]:
    """Black or white, whichever reads better on the colour."""
    red, green, blue = rgb
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)


def ticks(makespan: float, most: int = 10) -> list[float]:
    """Round times from 0 to the makespan, at most `most` steps of 1, 2 or 5 times a power of
    ten.
    """
    if makespan <= 0:
        return [0.0]
    power = 10.0 ** np.floor(np.log10(makespan / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if makespan / (power * factor) <= most)
    return [float(step * k) for k in range(int(makespan / step + 1e-9) + 1)]


def _chunks(order: Order) -> np.ndarray:
    """(S,) how many stages of the same rank come before each stage."""
    return np.array(
        [
            int(np.count_nonzero(order.rank_of_stage[:s] == rank))
            for s, rank in enumerate(order.rank_of_stage)
        ]
    )


def _few_enough(bars: int) -> None:
    if bars > MAX_BARS:
        raise InputError(
            f"a picture must have at most {MAX_BARS:,} actions, but has {bars:,}; take fewer"
            " micro-batches, --trace or --csv"
        )
