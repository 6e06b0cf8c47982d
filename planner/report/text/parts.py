"""Pieces that several answers share: the question in a line, the table of layouts, labelled
paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.layout import OFFLOADS, SCHEDULES, Layout, Numeric
from planner.specs.recipe import Recipe
from planner.units import GIB

GPUS = ("tp", "pp", "dp", "cp")
BATCH = ("dp", "mbs", "m")
"""Words whose product is the number of GPUs, and of sequences a step."""
ENDS = ("embedding", "loss")
"""What may count as a layer of the first, of the last stage."""
NO_PROGRESS = 5e-4
"""A share of the time that prints as 0.0%."""
WIDTH = 100
"""Columns that a table must not pass, since rich cuts what does."""


def heading(recipe: Recipe, batch: str = "") -> Group:
    """The question in a line, and below it what was not stated. A batch that varies is given in
    words.
    """
    line = Text.assemble(
        (recipe.model.name, "bold"),
        " on ",
        (f"{recipe.gpus:,} x {recipe.hardware.name}", "bold"),
        f": {batch or f'{recipe.global_batch_size:,}'} sequences of {recipe.seq_length:,} tokens a"
        f" step, {recipe.precision}, {recipe.framework} {recipe.framework_version}"
        f" ({recipe.stack.name})",
    )
    return Group(
        line, *([paragraph("Assumed", "; ".join(recipe.assumed) + ".")] if recipe.assumed else [])
    )


def plans(rows: Iterable[tuple[str, Layout, Estimate]], first: str = "") -> Table:
    """Layouts with the arithmetic of their columns: GPUs and batch as products."""
    listed = list(rows)
    cp = any(layout.cp > 1 for _, layout, _ in listed)
    wide = _plans(listed, first, cp, " x ")
    return (
        wide
        if not cp and Console(width=4 * WIDTH).measure(wide).maximum <= WIDTH
        else _plans(listed, first, cp, "*")
    )


def _plans(listed: list[tuple[str, Layout, Estimate]], first: str, cp: bool, times: str) -> Table:
    gpus, batch = (
        " or ".join(f"{n:,}" for n in sorted({count(one) for _, one, _ in listed}))
        for count in (_gpus, _batch)
    )
    split = any(layout.ep * layout.etp > 1 for _, layout, _ in listed)
    table = grid(
        first,
        f"{gpus} = {times.join(GPUS[: 3 + cp])}",
        *["ep"] * split,
        f"{batch} = {times.join(BATCH)}",
        "v",
        "zero",
        "recompute",
        "step s",
        "TFLOP/s",
        "MFU",
        "bubble",
        "GiB",
        "OOM",
    )
    table.columns[0].no_wrap = True
    table.columns[5 + split].no_wrap = False
    for name, layout, said in listed:
        degrees, batch = (
            times.join(str(getattr(layout, word)) for word in words)
            for words in (GPUS[: 3 + cp], BATCH)
        )
        table.add_row(
            name,
            degrees,
            *[experts(layout)] * split,
            batch,
            str(layout.v),
            zero(layout),
            layout.recomputation.replace(",", ", "),
            f"{said.step_s:.3f}",
            tflops(said),
            f"{said.mfu:.1%}",
            f"{said.bubble_share:z.1%}",
            f"{said.memory_bytes / GIB:.1f}",
            f"{said.oom_probability:.0%}",
        )
    return table


def tflops(estimate: Estimate, grouped: str = "") -> str:
    """Model TFLOP/s of a GPU: whole from 10 up, below that two significant digits. grouped: a comma
    for thousands.
    """
    rate = float(estimate.model_tflops_per_gpu)
    return (
        f"{rate:{grouped}.0f}"
        if rate >= 9.95
        else f"{rate:#.2g}"
        if rate >= 1e-4
        else f"{rate:.1e}"
    )


def experts(layout: Layout) -> str:
    """Ranks over which experts are split: ep, and etp where it is not 1."""
    return f"{layout.ep}" + (f" etp {layout.etp}" if layout.etp > 1 else "")


def _gpus(layout: Layout) -> int:
    return int(layout.gpus)


def _batch(layout: Layout) -> int:
    return int(layout.gbs)


def grid(*headers: str) -> Table:
    """A plain table: numbers to the right, the first column to the left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold")
    for at, header in enumerate(headers):
        table.add_column(header, justify="left" if at == 0 else "right", no_wrap=at > 0)
    return table


def zero(layout: Layout) -> str:
    """The sharding stage with what DeepSpeed adds to it: `3 params-cpu`, `3 hpz 8`."""
    away = f" {OFFLOADS[layout.offload]}" if layout.offload else ""
    return f"{layout.zero}{away}" + (f" hpz {layout.hpz}" if layout.hpz > 1 else "")


def unusual(layout: Layout) -> str:
    """The schedule's name where v does not say it."""
    name = SCHEDULES[layout.schedule]
    return "" if name == ("interleaved" if layout.v > 1 else "1f1b") else name


def splits(recipe: Recipe, rows: Iterable[tuple[str, Layout]]) -> list[Text]:
    """Where embedding or loss stand for layers: in which plans, and how many layers the stages
    share then.
    """
    named: dict[tuple[str, ...], list[str]] = {}
    listed = list(rows)
    for name, layout in listed:
        ends = tuple(end for end in ENDS if getattr(layout, f"account_for_{end}"))
        named.setdefault(ends, []).append(name)
    dealt = [
        paragraph(
            "Layers",
            f"{f'in plan {name} ' if name else ''}the stages hold {layout.stage_layout} "
            "(--pipeline-model-parallel-layout).",
        )
        for name, layout in listed
        if layout.stage_layout
    ]
    return [
        paragraph("Layers", _split(recipe.model.num_layers, ends, names))
        for ends, names in named.items()
        if ends
    ] + dealt


def _split(layers: int, ends: tuple[str, ...], names: list[str]) -> str:
    where = f"in plan {', '.join(names)} " if any(names) else ""
    parts = " + ".join([str(layers), *(f"1 for the {end}" for end in ends)])
    flags = " ".join(f"--account-for-{end}" for end in ends)
    return f"{where}the stages share {parts} = {layers + len(ends)} ({flags})."


def paragraph(label: str, text: str) -> Text:
    return Text.assemble((f"{label}: ", "bold"), text)


def more_assumed(recipe: Recipe, estimate: Estimate) -> list[Text]:
    """What an estimate assumed beyond what the heading names."""
    more = [one for one in estimate.assumed if one not in recipe.assumed]
    return [paragraph("Assumed too", "; ".join(more) + ".")] if more else []


def goodput(goodput: Goodput | None) -> list[Text]:
    """A run with failures in two sentences; nothing when none are stated."""
    if goodput is None:
        return []
    if goodput.goodput_share < NO_PROGRESS:
        text = (
            f"the run makes no progress: an interruption every {duration(goodput.mtbf_s)}, while a"
            f" step, a checkpoint of {duration(goodput.checkpoint_s)} and a restart of"
            f" {duration(goodput.restart_s)} take longer."
        )
    else:
        text = (
            f"{goodput.goodput_share:.1%} of the time trains: an interruption every"
            f" {duration(goodput.mtbf_s)}, a checkpoint every {goodput.interval_steps:,.0f}"
            f" step{'s' * bool(goodput.interval_steps > 1)} ({duration(goodput.interval_s)}) takes"
            f" {goodput.checkpoint_share:.1%}, restarts and work done again"
            f" {goodput.lost_share:.1%}; {goodput.days_per_trillion_tokens:,.1f} days a trillion"
            " tokens."
        )
    return [
        paragraph("Goodput", text),
        *(
            [paragraph("Assumed of failures", "; ".join(goodput.assumed) + ".")]
            if goodput.assumed
            else []
        ),
    ]


def duration(seconds: Numeric) -> str:
    """In the unit that leaves one to three digits before the point."""
    for unit, length in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.3g} s"


def bullets(lines: Iterable[str]) -> Table:
    """Sentences under a label, long ones indented."""
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("  -", line)
    return table
