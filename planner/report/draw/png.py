"""Gantt charts as PNG, drawn with Pillow (optional: the extra `report`)."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from planner.errors import InputError
from planner.report.draw.gantt_chart import (
    COLOURS,
    KIND_NAMES,
    LIGHTER,
    Chart,
    colour,
    ink,
    kinds_shown,
    ticks,
)
from planner.report.draw.svg import GAP, LEFT, ROW, TOP, WIDTH

SCALE = 2
"""Pixels of the bitmap for one of the SVG: sharp on dense screens."""
GREY = (119, 119, 119)


def png(chart: Chart) -> bytes:
    """The chart as a PNG file. Raises InputError when Pillow is not installed or the chart is too
    tall for a bitmap.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise InputError(
            "a PNG needs Pillow, which is not installed; pip install 'ppplan[report]', or write"
            " .svg or .html"
        ) from None
    height = TOP + chart.rows * (ROW + GAP) + 60
    if height > 20_000:
        raise InputError(
            f"a PNG must have at most 600 rows, but the chart has {chart.rows:,}; write .svg or"
            " .html"
        )
    image = Image.new("RGB", ((LEFT + WIDTH + 26) * SCALE, height * SCALE), "white")
    draw = ImageDraw.Draw(image)
    _write(draw, LEFT, 26, chart.title, 17, (34, 34, 34))
    _write(draw, LEFT, 46, chart.note, 13, (85, 85, 85))
    _grid(draw, chart)
    _bars(draw, chart)
    _legend(draw, chart, height - 14)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _grid(draw: Any, chart: Chart) -> None:
    bottom = TOP + chart.rows * (ROW + GAP)
    for row in range(chart.rows):
        y = TOP + row * (ROW + GAP)
        _fill(draw, LEFT, y, WIDTH, ROW, (244, 244, 244))
        _write(draw, LEFT - 8, y + ROW / 2 + 4, f"{chart.row_name} {row}", 12, (51, 51, 51), "rs")
    for time in ticks(chart.makespan):
        x = LEFT + time * WIDTH / (chart.makespan or 1)
        draw.line([x * SCALE, TOP * SCALE, x * SCALE, bottom * SCALE], (221, 221, 221), SCALE)
        _write(
            draw,
            x,
            bottom + 14,
            f"{time:g}{' ' + chart.unit if chart.unit else ''}",
            11,
            GREY,
            "ms",
        )


def _bars(draw: Any, chart: Chart) -> None:
    scale = WIDTH / (chart.makespan or 1)
    columns = (chart.row, chart.start, chart.end, chart.kind, chart.label, chart.shade, chart.half)
    for row, start, end, kind, label, shade, half in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        ground = colour(kind, shade)
        x, width = LEFT + start * scale, (end - start) * scale
        y, height = (
            TOP + row * (ROW + GAP) + (ROW / 2 if half == 2 else 0),
            (ROW / 2 if half else ROW),
        )
        _fill(draw, x, y, width - (0.6 if width > 3 else 0), height, ground)
        if width >= 7 * len(str(label)) + 2:
            _write(draw, x + width / 2, y + height / 2 + 4, str(label), 11, ink(ground), "ms")


def _legend(draw: Any, chart: Chart, y: float) -> None:
    for place, kind in enumerate(kinds_shown(chart)):
        _fill(draw, LEFT + 150 * place, y - 10, 12, 12, COLOURS[kind])
        _write(draw, LEFT + 150 * place + 18, y, KIND_NAMES[kind], 12, (51, 51, 51))
    if chart.shade.any():
        _write(draw, LEFT + 150 * len(kinds_shown(chart)), y, LIGHTER, 12, (51, 51, 51))


def _fill(
    draw: Any, x: float, y: float, width: float, height: float, rgb: tuple[int, int, int]
) -> None:
    left, top = round(x * SCALE), round(y * SCALE)
    right, bottom = (
        max(round((x + width) * SCALE) - 1, left),
        max(round((y + height) * SCALE) - 1, top),
    )
    draw.rectangle([left, top, right, bottom], fill=rgb)


def _write(
    draw: Any,
    x: float,
    y: float,
    text: str,
    size: int,
    rgb: tuple[int, int, int],
    anchor: str = "ls",
) -> None:
    draw.text((x * SCALE, y * SCALE), text, rgb, _font(size * SCALE), anchor=anchor)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
