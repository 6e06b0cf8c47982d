"""The eight phases that DualPipe and DualPipeV share: two streams of microbatches meet on a rank and overlap as pairs.

Source: [deepseek2024]; the order of the published implementations, also torch's DualPipeV.
"""

from __future__ import annotations

from planner.action import B, F, I, W

Row = tuple[int, int, int, int]


def rank_rows(half: int, rank: int, m: int, stages: tuple[int, int]) -> list[Row]:
    """Rows of a rank that stands `rank` places from the mouth of `half` ranks; the innermost rank turns the streams around.

    stages: where the first and the second stream run on this rank; m: microbatches of each stream.
    """
    first, second = stages
    rest = half - rank - 1
    done = {(stage, kind): 0 for stage in stages for kind in (F, B)}
    waiting: list[tuple[int, int]] = []
    rows: list[Row] = []

    def add(stage: int, kind: int, pair: int = 0) -> None:
        counted = F if kind == F else B
        j = done[stage, counted]
        done[stage, counted] = j + 1
        rows.append((stage, kind, j, pair))
        if kind == I:
            waiting.append((stage, j))

    def weight() -> None:
        stage, j = waiting.pop(0)
        rows.append((stage, W, j, 0))

    for _ in range(2 * rest):  # 1: forwards of the first stream
        add(first, F)
    for _ in range(rank + 1):  # 2: forwards of both
        add(first, F)
        add(second, F)
    for _ in range(rest):  # 3: the second stream turns back, split so that its gradient leaves early
        add(second, I)
        weight()
        add(second, F)
    for turn in range(m - 2 * half + rank + 1):  # 4: pairs both ways; the innermost rank starts apart to hand on sooner
        add(first, F, 0 if turn == 0 and rest == 0 else 1)
        add(second, B)
        add(second, F, 1)
        add(first, B)
    for _ in range(rest):  # 5: the first stream has no forward left
        add(second, B)
        add(second, F, 1)
        add(first, B)
    for turn in range(2 * (rank + 1)):  # 6: backwards of both, the later half split to fill the end
        add(first if turn % 2 else second, I if turn > rank else B)
    for _ in range(rest):  # 7: weight gradients while waiting for the last gradients of the first stream
        weight()
        add(first, I)
    while waiting:  # 8: the weight gradients that are left
        weight()
    return rows
