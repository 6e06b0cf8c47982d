"""Order + durations -> Timeline: when does each action run, if every rank keeps its order and waits
for its inputs?

Knows no model, no GPU, no schedule name. Units: whatever the durations are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.action import KIND, KINDS, PAIR, STAGE, B, F, Ints, Order, W, grid
from planner.errors import InputError

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_GROUP = np.array([0, 1, 1, 2])
"""Of each kind: forwards, gradients for the stage before, weight gradients; each needs its own
stage's row of the group before.
"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the simulator returns. Times have the unit of the durations; the first action starts at
    0.
    """

    start: tuple[Floats, ...]
    """Per rank, per action row; the two rows of a pair share start and end."""
    end: tuple[Floats, ...]
    makespan: float
    """Last end over all ranks."""
    span: float
    """The longest time between a rank's own first start and last end."""
    busy: Floats
    """(R,) time in actions."""
    idle: Floats
    """(R,) makespan - busy; holds waiting and, when blocking, sending."""
    bubble_share: float
    """Idle time / makespan, averaged over ranks."""
    span_bubble_share: float
    """1 - the busiest rank's work / span: what the zero bubble papers report."""
    peak_in_flight: Floats
    """(R,) chunks of activations held at the peak."""
    messages: int
    """Tensors that cross ranks, forward and backward."""


@dataclass(frozen=True, slots=True)
class _Graph:
    """All ranks' rows in one list, and what each waits for."""

    rows: Ints
    """(n, 4)"""
    rank: Ints
    """(n,) rank of a row."""
    first: Rows
    """(R + 1,) where each rank's rows begin."""
    needs: Rows
    """(n,) the row whose end this row waits for, beyond its own rank's order; -1 = none."""


def simulate(
    order: Order,
    durations: Floats,
    transfer: float | Floats = 0.0,
    blocking: bool = False,
    weight_retained: float = 1.0,
    pair_durations: Floats | None = None,
) -> Timeline:
    """The exact timeline of an order.

    durations: (S, 4), per stage and kind (forward, fused backward, input gradient, weight
    gradient). transfer: time from a producer's end until a consumer on another rank may start; one
    number, or (R, R) from rank to rank. blocking: the sender is busy for the transfer too (the two
    sends of a pair go as one batch); otherwise transfers are asynchronous. weight_retained: share
    of an activation that stays from the end of the input gradient to the end of the weight
    gradient. pair_durations: (S,) time of a stage's forward and fused backward when they overlap as
    a pair; None = their sum. A pair over two stages saves the mean of what the two stages save, and
    never takes less than its longer half. Raises InputError for an order that misses or repeats an
    action or deadlocks, and for durations that are negative or misshaped.
    """
    graph = _graph(order)
    spent = _spent(order, graph, np.asarray(durations, float), pair_durations)
    lag, crossing = _lag(order, graph, transfer)
    hold = np.zeros(len(spent))
    if blocking:
        np.maximum.at(hold, graph.needs[crossing], lag[crossing])
    end = _run(order, graph, spent, lag, hold)
    start = _starts(graph, end, lag, hold)
    peak = peak_in_flight(order, weight_retained)
    return _timeline(graph, start, end, spent, peak, int(crossing.sum()))


def makespans(
    order: Order, durations: Floats, transfer: float | Floats = 0.0, blocking: bool = False
) -> Floats:
    """(C,) makespan of one order under each of many durations, (C, S, 4): what simulate() says of
    each, all at once. The order has no pairs.
    """
    graph = _graph(order)
    lag, crossing = _lag(order, graph, transfer)
    hold = np.zeros(len(lag))
    if blocking:
        np.maximum.at(hold, graph.needs[crossing], lag[crossing])
    late = (lag - np.append(hold, 0.0)[graph.needs]).tolist()
    took = durations[:, graph.rows[:, STAGE], graph.rows[:, KIND]].T + hold[:, None]
    nothing = np.zeros(len(lag))
    one_each = _run(order, graph, np.ones(len(lag)), nothing, nothing)[:-1]
    end = np.zeros((len(lag) + 1, len(durations)))
    clock = np.zeros((order.ranks, len(durations)))
    needs, ranks = graph.needs.tolist(), graph.rank.tolist()
    for row in np.argsort(one_each, kind="stable").tolist():
        came = end[needs[row]] + late[row]
        own = clock[ranks[row]]
        np.maximum(came, own, out=own)
        own += took[row]
        end[row] = own
    makespan: Floats = (end[:-1] - hold[:, None]).max(axis=0)
    return makespan


def peak_in_flight(
    order: Order, weight_retained: float = 1.0, stage_weight: Floats | None = None
) -> Floats:
    """(R,) activations held at the peak of each rank: a property of the order alone, as a rank does
    one thing at a time.

    Held from the start of a forward to the end of its fused backward or weight gradient; the share
    1 - weight_retained is released at the end of the input gradient already. stage_weight: (S,)
    size of one activation of each stage; default 1 (the unit is chunks).
    """
    weight = np.ones(order.stages) if stage_weight is None else np.asarray(stage_weight, float)
    released = np.array([0.0, 1.0, 1.0 - weight_retained, weight_retained])
    return np.array([_peak(rows, weight, released) for rows in order.actions])


def fullest_moments(order: Order) -> tuple[Ints, ...]:
    """Of each rank (n, chunks): activations of each of its stages that it holds together, at the
    moments when at no other it holds as many of each. Backwards are fused.
    """
    return tuple(map(_fullest, order.actions))


def _fullest(rows: Ints) -> Ints:
    stages, chunk = np.unique(rows[:, STAGE], return_inverse=True)
    forward = rows[:, KIND] == F
    change = np.eye(len(stages), dtype=int)[chunk] * np.where(forward, 1, -1)[:, None]
    held = np.unique(np.cumsum(change, axis=0)[forward], axis=0)
    as_full = (held[:, None, :] <= held).all(axis=2).sum(axis=1)
    moments: Ints = held[as_full == 1]
    return moments


def _peak(rows: Ints, weight: Floats, released: Floats) -> float:
    if not len(rows):
        return 0.0
    size = weight[rows[:, STAGE]]
    release = size * released[rows[:, KIND]]
    paired = np.flatnonzero(rows[:, PAIR])
    release[paired + 1] += release[paired]  # both halves of a pair run until the pair ends
    release[paired] = 0.0
    held = np.cumsum(size * (rows[:, KIND] == F)) - (np.cumsum(release) - release)
    return float(held.max())


def _graph(order: Order) -> _Graph:
    counts = [len(rows) for rows in order.actions]
    if not sum(counts):
        raise InputError("an order must hold at least one action, but got none")
    rows = np.concatenate(order.actions)
    rank = np.repeat(np.arange(order.ranks, dtype=np.int32), counts)
    first = np.concatenate(([0], np.cumsum(counts)))
    _check_rows(order, rows, rank, first)
    return _Graph(rows, rank, first, _needs(order, rows))


def _check_rows(order: Order, rows: Ints, rank: Ints, first: Rows) -> None:
    limits = (order.stages, len(KINDS), len(rows))
    columns = np.ascontiguousarray(rows.T[:PAIR])
    if columns.min() < 0 or (columns.max(axis=1) >= limits).any():
        got = ", ".join(
            f"{name} {rows[:, i].min()} to {rows[:, i].max()}"
            for i, name in enumerate(("stage", "kind", "microbatch"))
        )
        raise InputError(
            f"stages, kinds and microbatches must be numbered from 0 without gaps, but got {got}"
        )
    astray = np.flatnonzero(order.rank_of_stage[rows[:, STAGE]] != rank)
    if len(astray):
        raise InputError(
            f"an action must be on its stage's rank, but {_word(rows, astray[0])} is on rank"
            f" {rank[astray[0]]}"
        )
    paired = np.flatnonzero(rows[:, PAIR])
    if len(paired) and (np.isin(paired + 1, first).any() or rows[paired + 1, PAIR].any()):
        raise InputError(
            "a pair must be two actions of one rank, but an order has a pair of one or of three"
        )


def _needs(order: Order, rows: Ints) -> Rows:
    """(n,) the row that each row waits for: the same microbatch on the neighbour stage of its
    chain, or -1.
    """
    stage, kind, microbatch, pair = np.ascontiguousarray(rows.T, np.int64)
    width, stages = int(microbatch.max()) + 1, order.stages
    group = _GROUP[kind]
    at = group * stages + stage
    key, place = at * width + microbatch, np.arange(len(rows))
    row_of = np.full(3 * stages * width + 1, -1)
    row_of[-1] = -2  # where nothing is needed
    row_of[key] = place
    _check_once(rows, np.flatnonzero(row_of[key] != place))
    inner = row_of[np.where(group > 0, key - stages * width, -1)]
    neighbour = np.concatenate((order.previous_stage, order.next_stage, np.full(stages, -1)))[at]
    outer = row_of[np.where(neighbour >= 0, key + (neighbour - stage) * width, -1)]
    _check_complete(rows, inner, outer, neighbour)
    done = np.append(place + pair, (0, 0))  # a pair's halves end together, with the second row
    own = done[inner]  # of no meaning where inner is -2
    late = (inner >= 0) & (own >= place)  # own forward not before its backward: waits for ever
    return np.where(late, own, np.where(outer < 0, -1, done[outer]))


def _check_once(rows: Ints, again: Rows) -> None:
    if len(again):
        raise InputError(
            f"an order must do each action once, but {_word(rows, again[0])} is there twice (or as"
            " B and I)"
        )


def _check_complete(rows: Ints, inner: Rows, outer: Rows, neighbour: Ints) -> None:
    lost = np.flatnonzero((inner == -1) | (outer == -1))
    if not len(lost):
        return
    stage, kind, microbatch, _ = rows[lost[0]].tolist()
    needed = (
        f"{stage}{'I' if kind == W else 'F'}"
        if inner[lost[0]] == -1
        else f"{neighbour[lost[0]]}{'F' if kind == F else 'B'}"
    )
    raise InputError(
        f"an order must hold what its actions need, but {_word(rows, lost[0])} needs"
        f" {needed}{microbatch}, which is missing"
    )


def _word(rows: Ints, row: int) -> str:
    stage, kind, microbatch, _ = rows[row].tolist()
    return f"{stage}{KINDS[kind]}{microbatch}"


def _spent(order: Order, graph: _Graph, durations: Floats, pair_durations: Floats | None) -> Floats:
    """(n,) time that each row adds; the first half of a pair adds none, the second all."""
    if (
        durations.shape != (order.stages, len(KINDS))
        or not (np.isfinite(durations) & (durations >= 0)).all()
    ):
        wanted = f"{order.stages} stages by {len(KINDS)} kinds, each >= 0"
        raise InputError(
            f"durations must be {wanted}, but got shape {durations.shape},"
            f" {str(durations.tolist())[:80]}"
        )
    spent = durations[graph.rows[:, STAGE], graph.rows[:, KIND]]
    first = np.flatnonzero(graph.rows[:, PAIR])
    if not len(first):
        return spent
    total = spent[first] + spent[first + 1]
    if pair_durations is not None:
        total = _overlapped(graph.rows, first, total, durations, np.asarray(pair_durations, float))
    spent[first], spent[first + 1] = 0.0, total
    return spent


def _overlapped(
    rows: Ints, first: Rows, total: Floats, durations: Floats, pair_durations: Floats
) -> Floats:
    if (
        pair_durations.shape != durations.shape[:1]
        or not (np.isfinite(pair_durations) & (pair_durations >= 0)).all()
    ):
        raise InputError(
            f"pair durations must be one a stage ({len(durations)}), each >= 0, but got"
            f" {str(pair_durations.tolist())[:80]}"
        )
    saved = durations[:, F] + durations[:, B] - pair_durations
    kinds = rows[first, KIND] + rows[first + 1, KIND]
    kinds_overlap = (kinds == F + B) & (rows[first, KIND] != rows[first + 1, KIND])
    mean = (saved[rows[first, STAGE]] + saved[rows[first + 1, STAGE]]) / 2
    halves = [durations[rows[at, STAGE], rows[at, KIND]] for at in (first, first + 1)]
    return np.where(kinds_overlap, np.maximum(total - mean, np.maximum(*halves)), total)


def _lag(order: Order, graph: _Graph, transfer: float | Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """(n,) time from the end of what a row needs until the row may start, and whether that crosses
    ranks.
    """
    times = np.asarray(transfer, float)
    if (
        times.shape not in ((), (order.ranks, order.ranks))
        or not (np.isfinite(times) & (times >= 0)).all()
    ):
        raise InputError(
            f"transfer must be one time >= 0 or one a pair of {order.ranks} ranks, but got"
            f" {str(times.tolist())[:80]}"
        )
    source = graph.rank[graph.needs]
    crossing = (graph.needs >= 0) & (source != graph.rank)
    between = np.broadcast_to(times, (order.ranks, order.ranks))
    return np.where(crossing, between[source, graph.rank], 0.0), crossing


def _run(order: Order, graph: _Graph, spent: Floats, lag: Floats, hold: Floats) -> Floats:
    """(n + 1,) end of each row (a pair's first row: its start); the last entry, 0, stands for needs
    = -1.

    Each rank runs as far as its inputs reach, then whoever waited for it. Plain lists: many times
    as fast here as numpy scalars.
    """
    took = (spent + hold).tolist()
    late = (
        lag - np.append(hold, 0.0)[graph.needs]
    ).tolist()  # what an end in this loop has in hold is no delay for the receiver
    needs, rank_of, first = graph.needs.tolist(), graph.rank.tolist(), graph.first.tolist()
    end = [-1.0] * len(took) + [0.0]
    working = [
        _work(range(a, b), needs[a:b], late[a:b], took[a:b], end) for a, b in pairwise(first)
    ]
    waiting: list[list[int]] = [[] for _ in working]
    waits_for = [-1] * order.ranks
    runnable = list(range(order.ranks))
    while runnable:
        rank = runnable.pop()
        if (needed := next(working[rank], -1)) >= 0:
            waits_for[rank] = needed
            waiting[rank_of[needed]].append(rank)
        if others := waiting[rank]:
            waiting[rank] = []
            for other in others:
                (runnable if end[waits_for[other]] >= 0.0 else waiting[rank]).append(other)
    ends = np.array(end)
    if ends.min() < 0.0:
        raise InputError(_deadlock(order, graph, ends))
    ends[:-1] -= hold
    return ends


def _work(
    rows: range, needs: list[int], late: list[float], took: list[float], end: list[float]
) -> Iterator[int]:
    """One rank at work: fills in the end of its rows, and yields the row that it waits for whenever
    it cannot go on.
    """
    time = 0.0
    for row, needed, wait, spent in zip(rows, needs, late, took, strict=True):
        while (came := end[needed]) < 0.0:
            yield needed
        came += wait
        end[row] = time = (came if came > time else time) + spent


def _deadlock(order: Order, graph: _Graph, ends: Floats) -> str:
    undone = np.flatnonzero(ends < 0.0)
    stuck, where = np.unique(graph.rank[undone], return_index=True)
    at = dict(zip(stuck.tolist(), undone[where].tolist(), strict=True))
    waits = ", ".join(f"rank {rank} waits at {_word(graph.rows, row)}" for rank, row in at.items())
    why = "; ".join(_wait(graph, row, int(graph.needs[row])) for row in at.values())
    marks = {rank: row - int(graph.first[rank]) for rank, row in at.items()}
    return f"deadlock: {waits}\n({why})\n{grid(order, marks)}"


def _wait(graph: _Graph, row: int, needed: int) -> str:
    return (
        f"{_word(graph.rows, row)} needs {_word(graph.rows, needed)} of rank {graph.rank[needed]}"
    )


def _starts(graph: _Graph, end: Floats, lag: Floats, hold: Floats) -> Floats:
    free = np.concatenate(([0.0], end[:-2] + hold[:-1]))
    free[graph.first[:-1][graph.first[:-1] < len(free)]] = 0.0
    return np.maximum(free, end[graph.needs] + lag)


def _timeline(
    graph: _Graph, start: Floats, end: Floats, spent: Floats, peak: Floats, messages: int
) -> Timeline:
    ranks = len(peak)
    first = np.flatnonzero(graph.rows[:, PAIR])
    start[first], end[first] = start[first + 1], end[first + 1]
    starts, ends = np.split(start, graph.first[1:-1]), np.split(end[:-1], graph.first[1:-1])
    makespan = float(end.max())
    span = max(float(e[-1] - s[0]) for s, e in zip(starts, ends, strict=True) if len(s))
    busy: Floats = np.bincount(graph.rank, spent, ranks).astype(float)
    return Timeline(
        start=tuple(starts),
        end=tuple(ends),
        makespan=makespan,
        span=span,
        busy=busy,
        idle=makespan - busy,
        bubble_share=1 - float(busy.mean()) / makespan if makespan else 0.0,
        span_bubble_share=1 - float(busy.max()) / span if span else 0.0,
        peak_in_flight=peak,
        messages=messages,
    )
