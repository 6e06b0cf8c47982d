"""The eight phases that DualPipe and DualPipeV share: two streams of microbatches meet on a rank
and overlap as pairs.

Source: [deepseek2024]; the order of the published implementations, also torch's DualPipeV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from planner.action import B, F, I, W

Row = tuple[int, int, int, int]
Turn = tuple[int, int, int]
"""Stage (-1: of the oldest waiting weight gradient), kind, pair."""

_WEIGHT: Turn = (-1, W, 0)


def rank_rows(half: int, rank: int, m: int, stages: tuple[int, int]) -> list[Row]:
    """Rows of a rank that stands `rank` places from the mouth of `half` ranks; the innermost rank
    turns the streams around.

    stages: where the first and the second stream run on this rank; m: microbatches of each stream.
    Microbatches come in order; weight gradients are run in the order of their input gradients.
    """
    done = {(stage, kind): 0 for stage in stages for kind in (F, B)}
    waiting: deque[tuple[int, int]] = deque()
    rows: list[Row] = []
    for stage, kind, pair in _turns(half, rank, m, *stages):
        if kind == W:
            rows.append((waiting[0][0], W, waiting.popleft()[1], 0))
            continue
        counted = stage, F if kind == F else B
        rows.append((stage, kind, done[counted], pair))
        if kind == I:
            waiting.append((stage, done[counted]))
        done[counted] += 1
    return rows


def _turns(half: int, rank: int, m: int, first: int, second: int) -> Iterator[Turn]:
    rest = half - rank - 1
    forwards, back_and_forth = ((first, F, 0), (second, F, 0)), ((second, F, 1), (first, B, 0))
    for _ in range(2 * rest):  # 1: forwards of the first stream
        yield first, F, 0
    for _ in range(rank + 1):  # 2: forwards of both
        yield from forwards
    for _ in range(
        rest
    ):  # 3: the second stream turns back, split so that its gradient leaves early
        yield from ((second, I, 0), _WEIGHT, (second, F, 0))
    for turn in range(
        m - 2 * half + rank + 1
    ):  # 4: pairs both ways; the innermost rank starts apart to hand on sooner
        yield from (
            (first, F, 0 if turn == 0 and rest == 0 else 1),
            (second, B, 0),
            *back_and_forth,
        )
    for _ in range(rest):  # 5: the first stream has no forward left
        yield from ((second, B, 0), *back_and_forth)
    for turn in range(2 * (rank + 1)):  # 6: backwards of both, the later half split to fill the end
        yield first if turn % 2 else second, I if turn > rank else B, 0
    for _ in range(
        rest
    ):  # 7: weight gradients while waiting for the last gradients of the first stream
        yield from (_WEIGHT, (first, I, 0))
    yield from (_WEIGHT,) * (rank + 1)  # 8: the weight gradients that are left
