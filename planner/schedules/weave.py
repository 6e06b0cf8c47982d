"""How forwards and backwards of one rank interleave: shared by the schedules that fill, alternate
and drain.
"""

from __future__ import annotations

import numpy as np

from planner.action import B, F, I, Ints, W


def rows(pairs: Ints, kind: int) -> Ints:
    """(n, 4) action rows of one kind from (n, 2) stage and microbatch."""
    out = np.zeros((len(pairs), 4), np.int32)
    out[:, 0], out[:, 1], out[:, 2] = pairs[:, 0], kind, pairs[:, 1]
    return out


def alternate(forwards: Ints, backwards: Ints, fill: int) -> Ints:
    """`fill` forwards, then a forward and a backward in turn, then the backwards that are left.

    forwards, backwards: (n, 2) stage and microbatch, in their order. Returns (2n, 4) rows.
    """
    n = len(forwards)
    fill = min(fill, n)
    steady_end = 2 * n - fill
    out = np.empty((2 * n, 4), np.int32)
    ahead, back = rows(forwards, F), rows(backwards, B)
    out[:fill], out[fill:steady_end:2] = ahead[:fill], ahead[fill:]
    out[fill + 1 : steady_end : 2], out[steady_end:] = back[: n - fill], back[n - fill :]
    return out


def alternate_split(forwards: Ints, backwards: Ints, fill: int, delay: int) -> Ints:
    """As alternate, with the backward split: each weight gradient follows the input gradient
    `delay` places later.

    What is left at the end runs weight gradients last. Returns (3n, 4) rows.
    """
    n = len(forwards)
    step = np.arange(n)
    place = np.concatenate(
        (3 * (step - min(fill, n)), 3 * step + 1, 3 * np.minimum(step + delay, n - 1) + 2)
    )
    everything = np.concatenate((rows(forwards, F), rows(backwards, I), rows(backwards, W)))
    return everything[np.argsort(place, kind="stable")]


def counted(stage: int, m: int) -> Ints:
    """(m, 2): microbatches 0 to m-1 of one stage."""
    out = np.empty((m, 2), np.int32)
    out[:, 0], out[:, 1] = stage, np.arange(m)
    return out


def rounds(m: int, v: int, group: int) -> Ints:
    """(m*v, 2) chunk and microbatch in Megatron's order: chunk by chunk within each group of
    microbatches; the last group is the rest.
    """
    grouped = m - m % group
    return np.concatenate(
        (_groups(0, grouped, v, group), _groups(grouped, m, v, max(m - grouped, 1)))
    )


def _groups(first: int, last: int, v: int, size: int) -> Ints:
    """Microbatches first to last - 1 in groups of one size."""
    count = (last - first) // size
    chunk = np.tile(np.repeat(np.arange(v), size), count)
    microbatch = np.arange(first, last).reshape(count, 1, size).repeat(v, axis=1).ravel()
    return np.stack((chunk, microbatch), axis=1).astype(np.int32)


def on_rank(table: Ints, rank: int, p: int, v: int = 0) -> Ints:
    """(n, 2) stage and microbatch of a rank's turns in a table of chunks; with v, the chunks run
    backwards (v-1 first).
    """
    chunk = v - 1 - table[:, 0] if v else table[:, 0]
    return np.stack((chunk * p + rank, table[:, 1]), axis=1)
