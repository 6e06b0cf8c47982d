"""The accuracy table of the README: `python -m planner.accuracy.table` regenerates it
between its markers.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from planner.accuracy.validate import Validation, validate
from planner.errors import InputError

BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
README = Path(__file__).parents[3] / "README.md"
COLUMNS = (
    ("median error", "median_abs_error"),
    ("90% under", "p90_abs_error"),
    ("bias", "bias"),
    ("Kendall tau", "kendall_tau"),
    ("regret", "regret"),
    ("of top 3", "regret_top3"),
    ("in range", "inside_range_share"),
    ("memory error", "memory_median_abs_error"),
)


def table(validation: Validation) -> str:
    """Markdown: a line a source and machine, then the sources' average and what was not
    predicted.
    """
    heads = ["source", "cluster", "predicted", *(head for head, _ in COLUMNS)]
    lines = [_line(heads), _line(["---", "---", *["--:"] * (len(heads) - 2)])]
    for group in validation.groups:
        predicted = f"{group['predicted']} of {group['rows']}"
        lines.append(_line([group["source"], group["hardware"] or "", predicted, *_cells(group)]))
    predicted = f"{validation.predicted} of {len(validation.rows)}"
    lines.append(
        _line(["**all, sources weighted equally**", "", predicted, *_cells(validation.overall)])
    )
    reasons = "; ".join(f"{reason} ({count})" for reason, count in validation.skipped.items())
    return "\n".join([*lines, "", f"Not predicted: {reasons or 'nothing'}."])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(figures: dict[str, Any]) -> list[str]:
    return [_cell(name, figures[name]) for _, name in COLUMNS]


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return ""
    formats = {"kendall_tau": ".2f", "bias": "+.1%"}
    return format(value, formats.get(name, ".1%"))


def replaced(text: str, made: str) -> str:
    """The text with `made` between the markers.

    Errors: InputError when they are not there, once each and in order.
    """
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise InputError(
            f"the file must hold {BEGIN} and, after it, {END}, once each, but it does not"
        )
    return f"{text[: begin + len(BEGIN)]}\n{made}\n{text[end:]}"


def main(words: list[str] | None = None) -> int:
    """Writes the table into the README, or --print shows it."""
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.table", description=__doc__)
    parser.add_argument("--file", type=Path, default=README)
    parser.add_argument("--print", action="store_true", dest="show", help="print it instead")
    options = parser.parse_args(words)
    made = table(validate())
    if options.show:
        print(made)
        return 0
    try:
        old = options.file.read_text(encoding="utf-8")
        new = replaced(old, made)
    except (OSError, InputError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    if new != old:
        options.file.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
