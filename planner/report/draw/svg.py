"""Gantt charts as standalone SVG and HTML: own small code, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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

LEFT, TOP, ROW, GAP, WIDTH = 74, 62, 26, 4, 1200
"""Pixels: margin of row names, of the title; height of a row and the space under it; width of the
makespan.
"""
MAX_WIDTH = 20_000
"""Pixels of the makespan on a page."""

_STYLE = """
svg{font-family:system-ui,"DejaVu Sans",sans-serif;background:#fff}
.t{font-size:17px;font-weight:600;fill:#222}.n{font-size:13px;fill:#555}.r{font-size:12px;\
fill:#333;text-anchor:end}
.a{font-size:11px;fill:#777;text-anchor:middle}.k{font-size:12px;fill:#333}.m{font-size:11px;\
text-anchor:middle;pointer-events:none}
.g{stroke:#ddd;stroke-width:1}.f{fill:#f4f4f4}
"""

_ZOOM = """
const svg=document.querySelector('svg'),box=svg.parentElement,natural=svg.viewBox.baseVal.width;
function size(width,at){const from=svg.clientWidth,left=box.scrollLeft+at;
svg.style.width=Math.max(box.clientWidth,Math.min(width,8*natural))+'px';\
box.scrollLeft=left*svg.clientWidth/from-at;}
svg.addEventListener('wheel',e=>{if(e.ctrlKey){e.preventDefault();
size(svg.clientWidth*(e.deltaY<0?1.25:0.8),e.clientX-box.getBoundingClientRect().left);}},\
{passive:false});
svg.addEventListener('dblclick',()=>size(svg.clientWidth>box.clientWidth?0:natural,0));size(0,0);
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body{{font-family:system-ui,"DejaVu \
Sans",sans-serif;margin:24px;color:#222}}div{{overflow-x:auto}}svg{{height:auto;display:block}}
table{{border-collapse:collapse;margin-top:16px;font-size:14px}}td,th{{padding:3px \
12px;text-align:right;border-bottom:1px solid #e4e4e4}}
p{{color:#666;font-size:13px}}
</style></head><body>
<div>{svg}</div>
<p>Double click: the whole makespan, or every label readable; Ctrl and wheel: zoom; rest on a bar: \
its times.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table>
<script>{script}</script>
</body></html>
"""


def svg(chart: Chart, width: float = WIDTH) -> str:
    """The chart as an SVG document whose makespan is `width` pixels wide."""
    across, height = LEFT + width + 26, TOP + chart.rows * (ROW + GAP) + 60
    scale = width / chart.makespan if chart.makespan else 0.0
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {height}"'
            f' width="{across:g}" height="{height}">'
        ),
        f"<style>{_STYLE}</style>",
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        (
            f'<text class="t" x="{LEFT}" y="26">{escape(chart.title)}</text><text class="n"'
            f' x="{LEFT}" y="46">{escape(chart.note)}</text>'
        ),
    ]
    return "\n".join(
        [
            *parts,
            *_grid(chart, width, scale),
            *_bars(chart, scale),
            *_legend(chart, height - 14),
            "</svg>",
            "",
        ]
    )


def html(chart: Chart, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A page that needs nothing else: the chart, wide enough for every label, over a table."""
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return _PAGE.format(
        title=escape(chart.title),
        svg=svg(chart, _readable(chart)),
        head=names,
        body=body,
        script=_ZOOM,
    )


def _readable(chart: Chart) -> float:
    """Pixels of the makespan at which the shortest bar holds its label, within reason."""
    lengths = (chart.end - chart.start)[chart.end > chart.start]
    digits = len(str(int(chart.label.max()))) if len(chart.label) else 1
    wanted = chart.makespan / float(lengths.min()) * (7 * digits + 3) if len(lengths) else WIDTH
    return float(min(max(wanted, WIDTH), MAX_WIDTH))


def _grid(chart: Chart, width: float, scale: float) -> list[str]:
    bottom = TOP + chart.rows * (ROW + GAP)
    out = []
    for row in range(chart.rows):
        y = TOP + row * (ROW + GAP)
        out.append(f'<rect class="f" x="{LEFT}" y="{y}" width="{width:g}" height="{ROW}"/>')
        out.append(
            f'<text class="r" x="{LEFT - 8}" y="{y + ROW / 2 + 4}">{chart.row_name} {row}</text>'
        )
    for time in ticks(chart.makespan, max(int(width / 120), 1)):
        x = LEFT + time * scale
        out.append(f'<line class="g" x1="{x:.2f}" x2="{x:.2f}" y1="{TOP}" y2="{bottom}"/>')
        out.append(
            f'<text class="a" x="{x:.2f}"'
            f' y="{bottom + 14}">{time:g}{" " + chart.unit if chart.unit else ""}</text>'
        )
    return out


def _bars(chart: Chart, scale: float) -> list[str]:
    columns = (
        chart.row,
        chart.start,
        chart.end,
        chart.kind,
        chart.label,
        chart.shade,
        chart.half,
        chart.name,
    )
    return [
        _bar(chart, scale, bar)
        for bar in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _bar(chart: Chart, scale: float, bar: tuple[int, float, float, str, int, int, int, str]) -> str:
    row, start, end, kind, label, shade, half, name = bar
    ground = colour(kind, shade)
    x, width = LEFT + start * scale, (end - start) * scale
    y, height = TOP + row * (ROW + GAP) + (ROW / 2 if half == 2 else 0), ROW / 2 if half else ROW
    edge = ' stroke="#fff" stroke-width="0.6"' if width > 3 else ""
    tooltip = f"{name}: {start:g} to {end:g}{' ' + chart.unit if chart.unit else ''}"
    box = (
        f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}"'
        f' fill="{_hex(ground)}"{edge}><title>{tooltip}</title></rect>'
    )
    if width < 7 * len(str(label)) + 2:
        return box
    middle = f'x="{x + width / 2:.2f}" y="{y + height / 2 + 4:g}"'
    return f'{box}<text class="m" {middle} fill="{_hex(ink(ground))}">{label}</text>'


def _legend(chart: Chart, y: float) -> list[str]:
    out, x = [], LEFT
    for kind in kinds_shown(chart):
        out.append(
            f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_hex(COLOURS[kind])}"/>'
        )
        out.append(f'<text class="k" x="{x + 18}" y="{y}">{KIND_NAMES[kind]}</text>')
        x += 150
    if chart.shade.any():
        out.append(f'<text class="k" x="{x}" y="{y}">{LIGHTER}</text>')
    return out


def _hex(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
