"""Automatic schedules: what they plan for, how a plan is judged, and which of many attempts is
kept.

An attempt is a list schedule (list_scheduling.py): time runs forward, and whenever a rank is free a
picker decides what it does next. Pickers differ in taste; no taste wins everywhere, so several are
tried and the shortest timeline is kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from planner.action import F, I, Order, W, from_rows
from planner.errors import InputError
from planner.schedules.automatic.list_scheduling import Built, Most, Picker, Work, length, run
from planner.simulator import Floats

EFFORT = 75_000
"""Actions that the attempts of one order may place together, about half a second; counted, so that
an order is reproducible.
"""
LEAST_ATTEMPTS = 5
"""Attempts made whatever they cost."""
CLOSE_ENOUGH = 1 + 1e-9


def prepared(
    placement: tuple[np.ndarray, np.ndarray],
    m: int,
    durations: Floats | None,
    transfer: float | Floats,
    memory_limit: float,
    weight_retained: float,
) -> Work:
    """The work to plan, checked. memory_limit: activations a rank may hold, in full stages (1/p of
    the model).

    durations: (S, 4) per stage and kind as simulate takes them (column B is not used); None =
    forward, input gradient and weight gradient take one full stage's unit each. Raises InputError.
    """
    rank_of_stage = placement[0]
    stages, p = len(rank_of_stage), int(rank_of_stage.max()) + 1
    chunks = stages // p
    _check(m, memory_limit, weight_retained)
    times = (
        np.full((stages, 4), 1.0 / chunks) if durations is None else np.asarray(durations, float)
    )
    if times.shape != (stages, 4) or not (np.isfinite(times) & (times >= 0)).all():
        raise InputError(
            f"durations must be {stages} stages by 4 kinds, each >= 0, but got shape {times.shape},"
            f" {times.tolist()}"
        )
    lag = np.asarray(transfer, float)
    if lag.shape not in ((), (p, p)) or not (np.isfinite(lag) & (lag >= 0)).all():
        raise InputError(
            f"transfer must be one time >= 0 or one a pair of {p} ranks, but got {lag.tolist()}"
        )
    between = np.broadcast_to(lag, (p, p)) * (1 - np.eye(p))
    here, before = rank_of_stage[1:], rank_of_stage[:-1]
    return Work(
        p=p,
        m=int(m),
        rank_of_stage=tuple(rank_of_stage.tolist()),
        forward=tuple(times[:, F].tolist()),
        gradient=tuple(times[:, I].tolist()),
        weight=tuple(times[:, W].tolist()),
        forward_hop=(0.0, *between[before, here].tolist()),
        gradient_hop=(*between[here, before].tolist(), 0.0),
        limit=min(float(memory_limit), float(m)) * chunks,
        retained=float(weight_retained),
    )


def _check(m: int, memory_limit: float, weight_retained: float) -> None:
    if m != int(m) or m < 1:
        raise InputError(f"microbatches must be a whole number >= 1, but got {m}")
    if not memory_limit >= 1:
        raise InputError(
            "the memory limit must hold one microbatch, 1 stage of activations a rank, but got"
            f" {memory_limit}"
        )
    if not 0 <= weight_retained <= 1:
        raise InputError(
            "the share that a weight gradient retains must be from 0 to 1, but got"
            f" {weight_retained}"
        )


def order_of(built: Built, placement: tuple[np.ndarray, np.ndarray]) -> Order:
    return from_rows(built.rows, placement)


def best(work: Work, pickers: Iterable[Picker], effort: float = EFFORT) -> Built:
    """The shortest of the attempts; stops at a proven bound, or when the effort is spent."""
    (floor_makespan, floor_span), after = bounds(work), tails(work)
    size = 3 * len(work.rank_of_stage) * work.m
    kept: Built | None = None
    for tried, picker in enumerate(pickers):
        if kept is not None and tried >= LEAST_ATTEMPTS and tried * size > effort:
            break
        most = (
            None
            if kept is None
            else Most(length(kept) / CLOSE_ENOUGH, floor_makespan, floor_span, after)
        )
        built = run(work, picker, most)
        if built is None:
            continue
        kept = built if kept is None else shorter(kept, built)
        if (
            kept.makespan <= floor_makespan * CLOSE_ENOUGH
            and kept.span <= floor_span * CLOSE_ENOUGH
        ):
            break
    if kept is None:
        raise InputError("an automatic schedule must have an attempt to choose from, but got none")
    return kept


def shorter(first: Built, other: Built) -> Built:
    """The better of two; within rounding, the first."""
    return other if length(other) < length(first) / CLOSE_ENOUGH else first


def bounds(work: Work) -> tuple[float, float]:
    """No order can have a shorter (makespan, span).

    Formula: a rank is busy for its work, and idle before its first input gradient for as long as
    the forwards that fit its memory leave open; it cannot start before the first forward has come
    to it; the first rank, which starts at 0, ends tails() later.
    Source:  [qi2023 sec. 3], where the same argument counts the warm-up forwards
    Assumes: nothing; ignores waits after the first input gradient.
    """
    came, first_forward, first_gradient = 0.0, [float("inf")] * work.p, [float("inf")] * work.p
    spent, longest = [0.0] * work.p, [0.0] * work.p
    for stage, rank in enumerate(work.rank_of_stage):
        came += work.forward_hop[stage]
        first_forward[rank] = min(first_forward[rank], came)
        came += work.forward[stage]
        spent[rank] += work.m * (work.forward[stage] + work.gradient[stage] + work.weight[stage])
        longest[rank] = max(longest[rank], work.forward[stage])
    for stage in range(len(work.rank_of_stage) - 1, -1, -1):
        rank = work.rank_of_stage[stage]
        came += work.gradient_hop[stage]
        first_gradient[rank] = min(first_gradient[rank], came)
        came += work.gradient[stage]
    chunks = len(work.rank_of_stage) // work.p
    filled = [min(work.limit, work.m * chunks) * each for each in longest]
    spans = [
        s + max(0.0, g - f - fill)
        for s, g, f, fill in zip(spent, first_gradient, first_forward, filled, strict=True)
    ]
    ends = [first + span for first, span in zip(first_forward, spans, strict=True)]
    first_rank = max(end + tail for end, tail in zip(ends, tails(work), strict=True))
    return max(*ends, first_rank), max(*spans, first_rank)


def tails(work: Work) -> list[float]:
    """(p,) by how much the first rank ends, at least, after a rank could have ended its work;
    negative where it may end before.

    Formula: input gradients of the stages before, from the rank's first stage back, and one weight
    gradient; less the rank's own weight gradients after its last input gradient: no more than its
    memory holds.
    Source:  [qi2023 sec. 3]
    Assumes: nothing; ignores that the ranks before may be busy.
    """
    chain, chains, longest = work.weight[0], [float("inf")] * work.p, [0.0] * work.p
    for stage, rank in enumerate(work.rank_of_stage):
        chains[rank] = min(chains[rank], chain)
        chain += work.gradient[stage] + work.gradient_hop[stage]
        longest[rank] = max(longest[rank], work.weight[stage])
    every = work.m * len(work.rank_of_stage) // work.p
    late = min(every, (work.limit - 1) / work.retained + 1) if work.retained else every
    return [chain - late * took for chain, took in zip(chains, longest, strict=True)]
