"""Predicted against measured step times, a point a run: SVG and HTML by own small code, PNG by
Pillow.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from planner.accuracy.validate import Validation
from planner.errors import InputError

LEFT, TOP, SIDE = 70, 50, 640
"""Pixels: margin of the axis' labels, of the title; the square."""
WIDTH, HEIGHT = LEFT + SIDE + 230, TOP + SIDE + 60
Colour = tuple[int, int, int]
INK, PALE = (51, 51, 51), (221, 221, 221)
COLOURS: tuple[Colour, ...] = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
    (110, 110, 110),
    (160, 160, 30),
    (23, 190, 207),
    (0, 0, 128),
    (128, 64, 0),
    (0, 100, 60),
    (200, 0, 120),
    (90, 140, 220),
    (220, 170, 60),
    (60, 60, 60),
)
SUFFIXES = (".html", ".svg", ".png")


class Line(NamedTuple):
    x: float
    y: float
    to_x: float
    to_y: float
    colour: Colour


class Dot(NamedTuple):
    x: float
    y: float
    radius: float
    colour: Colour
    says: str


class Words(NamedTuple):
    x: float
    y: float
    text: str
    anchor: str
    """start, middle or end."""
    size: int = 12


Mark = Line | Dot | Words


def check(path: str) -> None:
    """InputError unless the name says how to draw."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise InputError(
            f"--plot must name a file that ends in {', '.join(SUFFIXES)}, but got {path[:120]!r}"
        )


def picture(answer: Validation, path: str) -> str | bytes:
    """The picture in the format that the file's name says.

    Errors: InputError when no run has both times, or Pillow is missing for a PNG.
    """
    marks = list(_marks(answer))
    suffix = Path(path).suffix.lower()
    if suffix == ".png":
        return _png(marks)
    return _svg(marks) if suffix == ".svg" else _page(_svg(marks))


def _marks(answer: Validation) -> Iterator[Mark]:
    """Equal logarithmic axes; on the diagonal both times are the same."""
    rows = answer.rows[answer.rows["error"].notna() & (answer.rows["predicted_step_s"] > 0)]
    if rows.empty:
        raise InputError(
            "a plot must have runs with a predicted and a measured time, but none has both"
        )
    real, expected = (
        np.log10(rows[name].to_numpy(dtype=float))
        for name in ("measured_step_s", "predicted_step_s")
    )
    low = math.floor(min(real.min(), expected.min()))
    span = max(math.ceil(max(real.max(), expected.max())) - low, 1)
    yield Words(LEFT, 30, f"Step time: predicted against measured, {len(rows):,} runs", "start", 17)
    yield from _axes(low, span)
    colours = {
        name: COLOURS[at % len(COLOURS)] for at, name in enumerate(sorted(set(rows["source"])))
    }
    places = zip(
        LEFT + (real - low) / span * SIDE,
        TOP + SIDE - (expected - low) / span * SIDE,
        rows.to_dict("records"),
        strict=True,
    )
    for x, y, row in places:
        yield Dot(float(x), float(y), 2.5, colours[row["source"]], _says(row))
    for line, (source, colour) in enumerate(colours.items()):
        yield Dot(LEFT + SIDE + 20, TOP + 10 + 20 * line, 5, colour, source)
        yield Words(LEFT + SIDE + 32, TOP + 14 + 20 * line, source, "start")


def _axes(low: int, span: int) -> Iterator[Mark]:
    for power in range(low, low + span + 1):
        step, name = (power - low) / span * SIDE, f"{10.0**power:g} s"
        yield Line(LEFT + step, TOP, LEFT + step, TOP + SIDE, PALE)
        yield Line(LEFT, TOP + SIDE - step, LEFT + SIDE, TOP + SIDE - step, PALE)
        yield Words(LEFT + step, TOP + SIDE + 18, name, "middle")
        yield Words(LEFT - 6, TOP + SIDE - step + 4, name, "end")
    yield Line(LEFT, TOP + SIDE, LEFT + SIDE, TOP, (136, 136, 136))
    yield Words(LEFT + SIDE / 2, TOP + SIDE + 42, "measured", "middle")


def _says(row: dict[Any, Any]) -> str:
    size = "" if pd.isna(row["gpus"]) else f"{row['gpus']:.0f} x "
    times = (
        f"predicted {row['predicted_step_s']:.4g} s, measured {row['measured_step_s']:.4g} s"
        f" ({row['error']:+.1%})"
    )
    return f"{row['source']}: {row['model']}, {size}{row['hardware']}, {row['layout']}: {times}"


def _svg(marks: list[Mark]) -> str:
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    font = f'font-family="system-ui,DejaVu Sans,sans-serif" fill="rgb{INK}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {size}'
        f' {font}>\n<rect {size} fill="#fff"/>'
    )
    return "\n".join([head, *map(_tag, marks), "</svg>", ""])


def _tag(mark: Mark) -> str:
    if isinstance(mark, Line):
        return (
            f'<path d="M{mark.x:.1f} {mark.y:.1f}L{mark.to_x:.1f} {mark.to_y:.1f}"'
            f' stroke="rgb{mark.colour}"/>'
        )
    if isinstance(mark, Words):
        where = (
            f'x="{mark.x:.1f}" y="{mark.y:.1f}" text-anchor="{mark.anchor}" font-size="{mark.size}"'
        )
        return f"<text {where}>{escape(mark.text)}</text>"
    where = (
        f'cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.radius}" fill="rgb{mark.colour}"'
        ' fill-opacity="0.6"'
    )
    return f"<circle {where}><title>{escape(mark.says)}</title></circle>"


def _page(picture: str) -> str:
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Predicted against'
        " measured</title></head>"
    )
    return (
        f"{head}\n<body>\n{picture}<p>Rest on a point: the run, its layout, both"
        " times.</p>\n</body></html>\n"
    )


def _png(marks: list[Mark]) -> bytes:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise InputError(
            "a PNG needs Pillow, which is not installed; pip install 'ppplan[report]', or write"
            " .svg or .html"
        ) from None
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    fonts = {size: ImageFont.load_default(size) for size in (12, 17)}
    for mark in marks:
        if isinstance(mark, Line):
            draw.line(mark[:4], mark.colour)
        elif isinstance(mark, Words):
            draw.text(
                (mark.x, mark.y),
                mark.text,
                INK,
                fonts[mark.size],
                anchor=f"{mark.anchor[0].replace('s', 'l').replace('e', 'r')}s",
            )
        else:
            box = (
                mark.x - mark.radius,
                mark.y - mark.radius,
                mark.x + mark.radius,
                mark.y + mark.radius,
            )
            draw.ellipse(box, fill=mark.colour)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
