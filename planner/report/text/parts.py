"""Pieces that several answers share: the question in a line, the table of layouts, labelled
paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.estimate import kinds_of_layers
from planner.layout import SCHEDULES, Layout, Numeric
from planner.reasons import zero
from planner.specs.megatron_letters import by_letters
from planner.specs.recipe import Recipe
from planner.units import GIB, MIB, TERA

GPUS = ("tp", "pp", "dp", "cp")
BATCH = ("dp", "mbs", "m")
"""Words whose product is the number of GPUs, and of sequences a step."""
ENDS = ("embedding", "loss")
"""What may count as a layer of the first, of the last stage."""
NO_PROGRESS = 5e-4
"""A share of the time that prints as 0.0%."""
MILLI = 1e3
WIDTH = 100
"""Columns that a table must not pass, since rich cuts what does."""


def heading(recipe: Recipe, batch: str = "") -> Group:
    """The question in a line, and below it what was not stated. A batch that varies is given in
    words.
    """
    return Group(question(recipe, batch), *sentences("Assumed", recipe.assumed))


def question(recipe: Recipe, batch: str = "") -> Text:
    """The question in a line."""
    batch = batch or f"{recipe.global_batch_size:,}"
    image = recipe.versions.known_container
    container = f", container {image}" if image else ""
    return Text.assemble(
        (recipe.model.name, "bold"),
        " on ",
        (f"{recipe.gpus:,} x {recipe.hardware.name}", "bold"),
        f": {batch} sequences of {recipe.seq_length:,} tokens a step, {recipe.precision},"
        f" {recipe.framework} {recipe.framework_version}{recipe.versions.with_torchtitan}"
        f" ({recipe.software.name}{container})",
    )


def title(text: str) -> Text:
    return Text(f"\n{text}", "bold cyan")


KIND = ("kind", "layers", "params a GPU", "forward ms", "backward ms", "share", "MiB", "TFLOP")


def by_kind(recipe: Recipe, layout: Layout, name: str = "") -> list[Any]:
    """One layer of each kind, where there are several, under a title that begins with a name."""
    rows = kind_rows(recipe, layout)
    if len(rows) < 2:
        return []
    table = grid(*KIND)
    for row in rows:
        table.add_row(*row)
    return [title(f"{name}Layer by kind"), table]


def kind_rows(recipe: Recipe, layout: Layout) -> list[tuple[str, ...]]:
    """Of one layer of each kind, in the order of the model: parameters, time of a micro-batch, the
    kind's share of all layers' time, MiB that it keeps, and FLOPs over the GPUs that share it.
    """
    kinds = kinds_of_layers(recipe, layout)
    seconds = [kind.layers * (kind.forward_s + kind.backward_s) for kind in kinds]
    return [
        (
            kind.name,
            str(kind.layers),
            f"{kind.params:,}",
            f"{kind.forward_s * MILLI:.3f}",
            f"{kind.backward_s * MILLI:.3f}",
            f"{own / sum(seconds):.0%}",
            f"{kind.kept_bytes / MIB:,.1f}",
            f"{kind.flops / TERA:,.2f}",
        )
        for kind, own in zip(kinds, seconds, strict=True)
    ]


def plans(rows: Sequence[tuple[str, Layout, Estimate]], first: str = "") -> Table:
    """Layouts with the arithmetic of their columns: GPUs and batch as products."""
    cp = any(layout.cp > 1 for _, layout, _ in rows)
    spaced = _plans(rows, first, cp, " x ")
    if cp or Console(width=4 * WIDTH).measure(spaced).maximum > WIDTH:
        return _plans(rows, first, cp, "*")
    return spaced


def _plans(rows: Sequence[tuple[str, Layout, Estimate]], first: str, cp: bool, times: str) -> Table:
    gpu_words = GPUS[: 3 + cp]
    split = any(layout.ep * layout.etp > 1 for _, layout, _ in rows)
    table = grid(
        first,
        f"{_counts(layout.gpus for _, layout, _ in rows)} = {times.join(gpu_words)}",
        *["ep"] * split,
        f"{_counts(layout.gbs for _, layout, _ in rows)} = {times.join(BATCH)}",
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
    for name, layout, estimate in rows:
        table.add_row(
            name,
            product(layout, gpu_words, times),
            *[experts(layout)] * split,
            product(layout, BATCH, times),
            str(layout.v),
            zero(layout).replace("optimizer-", ""),  # 13 letters are too many for a column
            layout.recomputation.replace(",", ", "),
            *figures(estimate),
        )
    return table


def _counts(counts: Iterable[Numeric]) -> str:
    """The different numbers, the smallest first: `64 or 128`."""
    return " or ".join(f"{count:,}" for count in sorted(set(map(int, counts))))


def product(layout: Layout, words: Iterable[str], times: str) -> str:
    """Degrees of a layout as factors: `8 x 4 x 2`."""
    return times.join(str(getattr(layout, word)) for word in words)


def figures(estimate: Estimate) -> tuple[str, ...]:
    """Seconds of a step, TFLOP/s of a GPU, MFU, bubble, GiB of the worst stage, OOM probability."""
    return (
        f"{estimate.step_s:.3f}",
        tflops(estimate),
        f"{estimate.mfu:.1%}",
        f"{estimate.bubble_share:z.1%}",
        f"{estimate.memory_bytes / GIB:.1f}",
        f"{estimate.oom_probability:.0%}",
    )


def tflops(estimate: Estimate, grouped: str = "") -> str:
    """Model TFLOP/s of a GPU: whole from 10 up, below that two significant digits. grouped: a comma
    for thousands.
    """
    rate = float(estimate.model_tflops_per_gpu)
    if rate >= 9.95:
        return f"{rate:{grouped}.0f}"
    return f"{rate:#.2g}" if rate >= 1e-4 else f"{rate:.1e}"


def experts(layout: Layout) -> str:
    """Ranks over which experts are split: ep, and etp where it is not 1."""
    return f"{layout.ep}" + f" etp {layout.etp}" * (layout.etp > 1)


def grid(*headers: str) -> Table:
    """A plain table: numbers to the right, the first column to the left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold")
    table.add_column(headers[0])
    for header in headers[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def unusual(layout: Layout) -> str:
    """The schedule's name where v does not say it."""
    name = SCHEDULES[layout.schedule]
    usual = "interleaved" if layout.v > 1 else "1f1b"
    return "" if name == usual else name


def splits(recipe: Recipe, rows: Iterable[tuple[str, Layout]]) -> list[Text]:
    """Where embedding or loss stand for layers: in which plans, and how many layers the stages
    share then.
    """
    named: dict[tuple[str, ...], list[str]] = {}
    dealt = []
    for name, layout in rows:
        ends = tuple(end for end in ENDS if getattr(layout, f"account_for_{end}"))
        named.setdefault(ends, []).append(name)
        if layout.stage_layout:
            where = f"in plan {name} " * bool(name)
            flag = (
                "| in --hybrid-layer-pattern"
                if by_letters(recipe.model)
                else "--pipeline-model-parallel-layout"
            )
            dealt.append(f"{where}the stages hold {layout.stage_layout} ({flag}).")
    named.pop((), None)
    shared = [_split(recipe.model.num_layers, ends, names) for ends, names in named.items()]
    return [paragraph("Layers", text) for text in shared + dealt]


def _split(layers: int, ends: tuple[str, ...], names: list[str]) -> str:
    where = f"in plan {', '.join(names)} " * any(names)
    parts = " + ".join([str(layers), *(f"1 for the {end}" for end in ends)])
    flags = " ".join(f"--account-for-{end}" for end in ends)
    return f"{where}the stages share {parts} = {layers + len(ends)} ({flags})."


def paragraph(label: str, text: str) -> Text:
    return Text.assemble((f"{label}: ", "bold"), text)


def sentences(label: str, clauses: Sequence[str]) -> list[Text]:
    """Clauses under one label; nothing without any."""
    return [paragraph(label, "; ".join(clauses) + ".")] * bool(clauses)


def more_assumed(recipe: Recipe, estimate: Estimate) -> list[Text]:
    """What an estimate assumed beyond what the heading names."""
    more = [text for text in estimate.assumed if text not in recipe.assumed]
    return sentences("Assumed too", more)


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
    return [paragraph("Goodput", text), *sentences("Assumed of failures", goodput.assumed)]


def duration(seconds: Numeric) -> str:
    """In the unit that leaves one to three digits before the point."""
    for unit, length in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.3g} s"


def bullets(lines: Iterable[str]) -> Table:
    """A bullet a line, long ones indented."""
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("  -", line)
    return table
