"""A Gantt chart in the terminal: one line a row, the micro-batch's number where it fits, the kind
by filling and colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.report.draw.gantt_chart import (
    COLOURS,
    KIND_NAMES,
    Chart,
    colour,
    ink,
    kinds_shown,
    ticks,
)

if TYPE_CHECKING:
    from rich.text import Text

FILL = {"F": "·", "B": "═", "I": "─", "W": "▒", "P": "·", "D": "░"}
"""Tells the kinds apart where there is no colour."""
PAIR_FILL = "≡"
MAX_ROWS = 64


def gantt(chart: Chart, width: int = 100) -> Text:
    """The chart in at most `width` columns; of more than 64 rows the first and the last 32."""
    from rich.text import Text

    margin = len(f"{chart.row_name} {chart.rows - 1} ")
    columns = _columns(chart, width - margin - 1)
    shown = (
        list(range(chart.rows))
        if chart.rows <= MAX_ROWS
        else [*range(32), *range(chart.rows - 32, chart.rows)]
    )
    out = Text(no_wrap=True)
    for place, row in enumerate(shown):
        if row != place and shown[place - 1] == 31:
            out.append(f"{'...':{margin}}({chart.rows - MAX_ROWS} rows between)\n", "dim")
        out.append(f"{chart.row_name} {row} ".ljust(margin), "dim")
        out.append_text(_line(chart, row, columns))
        out.append("\n")
    out.append_text(_axis(chart, margin, columns))
    out.append("\n")
    out.append_text(_legend(chart, margin, width))
    return out


def _columns(chart: Chart, room: int) -> int:
    """Columns of the makespan: a whole number for each shortest step when that fits, so that equal
    bars look equal.
    """
    lengths = (chart.end - chart.start)[chart.end > chart.start]
    if not len(lengths) or chart.makespan <= 0:
        return room
    steps = np.concatenate((chart.start, chart.end)) / lengths.min()
    makespan_steps = chart.makespan / lengths.min()
    if np.allclose(steps, np.round(steps), atol=1e-6) and makespan_steps <= room:
        return int(round(makespan_steps) * (room // round(makespan_steps)))
    return room


def _line(chart: Chart, row: int, columns: int) -> Text:
    """One row: every bar that reaches the middle of a column fills it; numbers go on bars of two
    columns and more.
    """
    from rich.text import Text

    mine = np.flatnonzero((chart.row == row) & (chart.half < 2) & (chart.end > chart.start))
    scale = columns / chart.makespan if chart.makespan else 0.0
    first = np.ceil(chart.start[mine] * scale - 0.5 - 1e-9).astype(int)
    last = np.ceil(chart.end[mine] * scale - 0.5 - 1e-9).astype(int)
    line = Text()
    wide = _labelled(chart, scale)
    for bar, begin, end in zip(mine.tolist(), first.tolist(), last.tolist(), strict=True):
        line.append(" " * (begin - len(line)))
        line.append(
            _cell(chart, bar, end - begin, str(chart.kind[bar]) in wide), _style(chart, bar)
        )
    return line


def _labelled(chart: Chart, scale: float) -> set[str]:
    """Kinds whose usual bar is a column wide: on thinner ones a few stray numbers would mislead."""
    lengths = chart.end - chart.start
    return {
        kind
        for kind in kinds_shown(chart)
        if np.median(lengths[chart.kind == kind]) * scale > 1 - 1e-9
    }


def _cell(chart: Chart, bar: int, width: int, labelled: bool) -> str:
    fill = PAIR_FILL if chart.half[bar] else FILL[str(chart.kind[bar])]
    label = str(chart.label[bar]) if labelled else ""
    room = (
        width if fill == FILL["F"] else width - 1
    )  # a number alone is a forward: other kinds keep some of their filling
    return label + fill * (width - len(label)) if len(label) <= room else fill * width


def _style(chart: Chart, bar: int) -> str:
    ground = colour(str(chart.kind[bar]), int(chart.shade[bar]))
    return f"{_rgb(ink(ground))} on {_rgb(ground)}"


def _rgb(rgb: tuple[int, int, int]) -> str:
    return f"rgb({rgb[0]},{rgb[1]},{rgb[2]})"


def _axis(chart: Chart, margin: int, columns: int) -> Text:
    from rich.text import Text

    line = ""
    for time in ticks(chart.makespan, max(columns // 10, 1)):
        at = round(time / chart.makespan * columns) if chart.makespan else 0
        if at >= len(line) and at + len(f"{time:g}") <= columns + 1:
            line = line.ljust(at) + f"{time:g}"
    return Text(" " * margin + line + (f" {chart.unit}" if chart.unit else ""), "dim")


def _legend(chart: Chart, margin: int, width: int) -> Text:
    """What the fillings and colours mean, in as many lines as the width needs."""
    from rich.text import Text

    styles = {
        kind: f"{_rgb(ink(COLOURS[kind]))} on {_rgb(COLOURS[kind])}" for kind in kinds_shown(chart)
    }
    entries = [(f"3{FILL[kind] * 2}", style, KIND_NAMES[kind]) for kind, style in styles.items()]
    entries += [(f"3{PAIR_FILL * 2}", "", "overlapped pair")] if chart.half.any() else []
    entries.append(("3", "", "micro-batch" if chart.row_name == "rank" else "batch"))
    out, column = Text(" " * margin), margin
    for sample, style, name in entries:
        size = len(sample) + len(name) + 1
        gap = 3 if column > margin else 0
        if gap and column + gap + size > width:
            out.append("\n" + " " * margin)
            column, gap = margin, 0
        out.append(" " * gap)
        out.append(sample, style)
        out.append(f" {name}")
        column += gap + size
    return out
