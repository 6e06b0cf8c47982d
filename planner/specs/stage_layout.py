"""Megatron's --pipeline-model-parallel-layout.

`E` embedding, `t` layer, `m` multi-token prediction, `L` loss, `|` between stages; repeats as `t*7`
and `(tt|)*3`.
"""

from __future__ import annotations

import re
from itertools import groupby

from planner.errors import InputError
from planner.layout import Layout

_GROUP = re.compile(r"\(([^()]+)\)\*(\d+)")
_LETTER = re.compile(r"([A-Za-z|])\*(\d+)")
_MAX_LETTERS = 100_000


def stages(text: str) -> tuple[str, ...]:
    """Letters of every stage in order: all pipeline ranks of virtual stage 0, then those of virtual
    stage 1, ...

    Source: [megatron-core], core/transformer/pipeline_parallel_layer_layout.py.
    Raises InputError for unknown letters and for repeats that grow beyond reason.
    """
    plain = text.replace(",", "").replace(" ", "")
    for pattern in (_GROUP, _LETTER):
        if sum(int(times) * len(part) for part, times in pattern.findall(plain)) > _MAX_LETTERS:
            raise InputError(
                f"a stage layout must stay under {_MAX_LETTERS:,} letters, but got {text[:60]!r}"
            )
        plain = pattern.sub(lambda match: match[1] * int(match[2]), plain)
    strange = sorted(set(plain) - set("EtmL|"))
    if strange:
        raise InputError(
            f"a stage layout holds E, t, m, L, |, (...)*n and x*n, but got {strange[0]!r} in"
            f" {text[:60]!r}"
        )
    return tuple(plain.split("|"))


def layers(text: str) -> tuple[int, ...]:
    """Transformer layers of every stage, in the order of stages()."""
    return tuple(stage.count("t") for stage in stages(text))


def written(stages: list[int], mtp_layers: int) -> str:
    """The text for so many layers of each stage: `Ett|(ttt|)*29mL`, equal neighbours as repeats."""
    texts = ["t" * count for count in stages]
    texts[0], texts[-1] = "E" + texts[0], texts[-1] + "m" * mtp_layers + "L"
    out = ""
    for text, equal in groupby(texts[:-1]):
        count = len(list(equal))
        out += f"({text}|)*{count}" if count > 2 else f"{text}|" * count
    return out + texts[-1]


def dealt(count: int, layout: Layout) -> tuple[int, ...]:
    """Layers of every stage that Megatron-LM deals of so many, in the order of stages().

    Source: [megatron-core] get_num_layers_to_build, pipeline_parallel_layer_layout.
    """
    if layout.stage_layout:
        return layers(layout.stage_layout)
    ranks = [float(count)]
    if layout.pp > 1:
        first, last = layout.first_layers, layout.last_layers
        if first or last:
            others = max(layout.pp - (first > 0) - (last > 0), 1)
            rest = (count - first - last) / others
            ranks = [first or rest, *[rest] * (layout.pp - 2), last or rest]
        else:
            accounted = layout.account_for_embedding + layout.account_for_loss
            ranks = [(count + accounted) / layout.pp] * layout.pp
            ranks[0] -= layout.account_for_embedding
            ranks[-1] -= layout.account_for_loss
    lacks_first = layout.account_for_embedding and not layout.first_layers
    lacks_last = layout.account_for_loss and not layout.last_layers
    out = [0] * (layout.pp * layout.v)
    for rank, share in enumerate(ranks):
        less_first = int(rank == 0 and lacks_first)
        less_last = int(rank == layout.pp - 1 and lacks_last)
        chunk = round((share + less_first + less_last) / layout.v)
        out[rank :: layout.pp] = [chunk] * layout.v
        out[rank] -= less_first
        out[rank - layout.pp] -= less_last
    return tuple(out)
