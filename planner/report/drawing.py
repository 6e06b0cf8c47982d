"""Gantt charts as standalone SVG and HTML: own small code, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from planner.report.chart import COLOURS, KIND_NAMES, Chart, colour, ink, kinds_shown, ticks

LEFT, TOP, ROW, GAP, WIDTH = 74, 62, 26, 4, 1200
"""Pixels: margin of row names, of the title; height of a row and the space under it; width of the makespan."""

_STYLE = """
svg{font-family:system-ui,"DejaVu Sans",sans-serif;background:#fff}
.t{font-size:17px;font-weight:600;fill:#222}.n{font-size:13px;fill:#555}.r{font-size:12px;fill:#333;text-anchor:end}
.a{font-size:11px;fill:#777;text-anchor:middle}.k{font-size:12px;fill:#333}.m{font-size:11px;text-anchor:middle;pointer-events:none}
.g{stroke:#ddd;stroke-width:1}.f{fill:#f4f4f4}
"""

_ZOOM = """
const svg=document.querySelector('svg'),whole=svg.viewBox.baseVal;const full=[whole.x,whole.width];
function show(x,w){w=Math.min(w,full[1]);x=Math.max(full[0],Math.min(x,full[0]+full[1]-w));
svg.setAttribute('viewBox',[x,whole.y,w,whole.height].join(' '));svg.setAttribute('preserveAspectRatio','none');}
svg.addEventListener('wheel',e=>{e.preventDefault();const b=svg.viewBox.baseVal,r=svg.getBoundingClientRect();
const at=b.x+(e.clientX-r.left)/r.width*b.width,k=e.deltaY<0?0.8:1.25;show(at-(at-b.x)*k,b.width*k);},{passive:false});
let from=null;svg.addEventListener('mousedown',e=>{from=[e.clientX,svg.viewBox.baseVal.x];});
addEventListener('mousemove',e=>{if(from){const b=svg.viewBox.baseVal,r=svg.getBoundingClientRect();
show(from[1]-(e.clientX-from[0])/r.width*b.width,b.width);}});addEventListener('mouseup',()=>{from=null;});
svg.addEventListener('dblclick',()=>show(full[0],full[1]));
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body{{font-family:system-ui,"DejaVu Sans",sans-serif;margin:24px;color:#222}}svg{{width:100%;height:auto;cursor:grab}}
table{{border-collapse:collapse;margin-top:16px;font-size:14px}}td,th{{padding:3px 12px;text-align:right;border-bottom:1px solid #e4e4e4}}
p{{color:#666;font-size:13px}}
</style></head><body>
{svg}
<p>Wheel: zoom in time; drag: move; double click: all of it; rest on a bar: its times.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table>
<script>{script}</script>
</body></html>
"""


def svg(chart: Chart) -> str:
    """The chart as an SVG document of 1,300 pixels width."""
    width, height = LEFT + WIDTH + 26, TOP + chart.rows * (ROW + GAP) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<text class="t" x="{LEFT}" y="26">{escape(chart.title)}</text><text class="n" x="{LEFT}" y="46">{escape(chart.note)}</text>',
    ]
    return "\n".join([*parts, *_grid(chart), *_bars(chart), *_legend(chart, height - 14), "</svg>", ""])


def html(chart: Chart, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A page that needs nothing else: the chart, zoomed by the wheel, over a table."""
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return _PAGE.format(title=escape(chart.title), svg=svg(chart), head=names, body=body, script=_ZOOM)


def _grid(chart: Chart) -> list[str]:
    bottom = TOP + chart.rows * (ROW + GAP)
    out = []
    for row in range(chart.rows):
        y = TOP + row * (ROW + GAP)
        out.append(f'<rect class="f" x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW}"/>')
        out.append(f'<text class="r" x="{LEFT - 8}" y="{y + ROW / 2 + 4}">{chart.row_name} {row}</text>')
    for time in ticks(chart.makespan):
        x = LEFT + time * _scale(chart)
        out.append(f'<line class="g" x1="{x:.2f}" x2="{x:.2f}" y1="{TOP}" y2="{bottom}"/>')
        out.append(f'<text class="a" x="{x:.2f}" y="{bottom + 14}">{time:g}{" " + chart.unit if chart.unit else ""}</text>')
    return out


def _bars(chart: Chart) -> list[str]:
    columns = (chart.row, chart.start, chart.end, chart.kind, chart.label, chart.shade, chart.half, chart.name)
    return [_bar(chart, bar) for bar in zip(*(column.tolist() for column in columns), strict=True)]


def _bar(chart: Chart, bar: tuple[int, float, float, str, int, int, int, str]) -> str:
    row, start, end, kind, label, shade, half, name = bar
    scale, ground = _scale(chart), colour(kind, shade)
    x, width = LEFT + start * scale, (end - start) * scale
    y, height = TOP + row * (ROW + GAP) + (ROW / 2 if half == 2 else 0), ROW / 2 if half else ROW
    edge = ' stroke="#fff" stroke-width="0.6"' if width > 3 else ""
    said = f"{name}: {start:g} to {end:g}{' ' + chart.unit if chart.unit else ''}"
    box = f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}" fill="{_hex(ground)}"{edge}><title>{said}</title></rect>'
    if width < 7 * len(str(label)) + 2:
        return box
    middle = f'x="{x + width / 2:.2f}" y="{y + height / 2 + 4:g}"'
    return f'{box}<text class="m" {middle} fill="{_hex(ink(ground))}">{label}</text>'


def _legend(chart: Chart, y: float) -> list[str]:
    out, x = [], LEFT
    for kind in kinds_shown(chart):
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_hex(COLOURS[kind])}"/>')
        out.append(f'<text class="k" x="{x + 18}" y="{y}">{KIND_NAMES[kind]}</text>')
        x += 150
    return out


def _scale(chart: Chart) -> float:
    return WIDTH / chart.makespan if chart.makespan else 0.0


def _hex(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
