"""What a person sees while `tune` works: a line a trial on stderr, with the best so far and the
time left.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from rich.console import Console

from planner.report.text.tune import named_by
from planner.tune.study.trials import COUNTED, Row, best


def teller(console: Console, trials: int) -> Callable[[Row, tuple[Row, ...]], None]:
    """Prints to a console; on a terminal a spinner stays below for the trial that runs."""
    status = console.status("") if console.is_terminal else None

    def tell(row: Row, rows: tuple[Row, ...]) -> None:
        if row.state == "running":
            if status is not None:
                status.update(_running(row, rows, trials))
                status.start()
            return
        if status is not None:
            status.stop()
        console.print(_ended(row, rows, trials), markup=False, highlight=False, soft_wrap=True)

    return tell


def _running(row: Row, rows: tuple[Row, ...], trials: int) -> str:
    return (
        f"#{row.number} of {trials}: {named_by(row)}, predicted {row.predicted_s:.4g} s;"
        f" {_so_far(rows)}"
    )


def _ended(row: Row, rows: tuple[Row, ...], trials: int) -> str:
    took = f"{row.measured_s:.4g} s a step" if row.measured_s is not None else row.state
    pruned = ", stopped as clearly behind" * (row.state == "pruned")
    return f"#{row.number}: {named_by(row)}: {took}{pruned}; {_so_far(rows)}{_left(rows, trials)}"


def _so_far(rows: tuple[Row, ...]) -> str:
    fastest = best(rows)
    if fastest is None:
        return "none finished yet"
    return f"best so far #{fastest.number} {fastest.measured_s:.4g} s"


def _left(rows: tuple[Row, ...], trials: int) -> str:
    """Trials to go times what one took."""
    counted = [row.seconds for row in rows if row.state in COUNTED]
    took = [seconds for seconds in counted if seconds > 0]
    left = trials - len(counted)
    if not took or left <= 0:
        return ""
    seconds = left * statistics.median(took)
    if seconds >= 90:
        return f"; about {seconds / 60:.0f} min left"
    return f"; about {seconds:.0f} s left"
