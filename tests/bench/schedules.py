"""Speed of orders and the simulator: `python -m tests.bench.schedules`.

Warm runs, in milliseconds: best and median of the clock, and the best processor time, which a busy
machine disturbs less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from planner.errors import InputError
from planner.schedules import durations, table
from planner.simulator import simulate


def timed(run: Callable[[], object], times: int = 20) -> str:
    """Best and median after one run to warm up."""
    run()
    took, worked = [], []
    for _ in range(times):
        begin, cpu = time.perf_counter(), time.process_time()
        run()
        took.append(1e3 * (time.perf_counter() - begin))
        worked.append(1e3 * (time.process_time() - cpu))
    return (
        f"best {min(took):.1f} ms, median {statistics.median(took):.1f} ms, processor"
        f" {min(worked):.1f} ms"
    )


def one(name: str, p: int, m: int, v: int) -> int:
    """Order and timeline of one schedule; returns its number of actions."""
    order = table.order(name, p, m, v)
    simulate(order, durations.stage_durations(order, v, 1.0, 1.0, 1.0))
    return sum(len(rows) for rows in order.actions)


def every(p: int, m: int) -> int:
    """Every schedule of the table that p and m allow; returns how many."""
    ran = 0
    for name, schedule in table.SCHEDULES.items():
        v = schedule.chunks[0]
        try:
            schedule.legal(p, m, v)
        except InputError:
            continue
        one(name, p, m, v)
        ran += 1
    return ran


def main() -> None:
    actions, speed = one("interleaved", 16, 512, 4), timed(lambda: one("interleaved", 16, 512, 4))
    print(
        f"interleaved, 16 ranks, v = 4, m = 512, {actions:,} actions, order and simulation: {speed}"
    )
    print(
        "zb-1p, 16 ranks, m = 128, order and simulation:"
        f" {timed(lambda: one('zb-1p', 16, 128, 1), 3)}"
    )
    print(
        f"all {every(8, 64)} schedules that p = 8, m = 64 allow: {timed(lambda: every(8, 64), 3)}"
    )


if __name__ == "__main__":
    main()
