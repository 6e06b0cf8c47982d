"""Forward-only pipelines: batches pass the stages in order; prompts are cut into chunks, decode
groups go round.

Times in any unit, all the same. Laws that the tests check, for stages of equal speed and batch
times tau_k: makespan = sum tau + (p - 1) max tau + (p - 1) c, so the bubble of a prompt depends
only on its largest chunk; a ring of decode groups settles to the period max(sum tau, p max tau + p
c + host).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError

MAX_CELLS = 5_000_000
"""Batches times stages: about two seconds of simulation."""


@dataclass(frozen=True, slots=True)
class Passage:
    """When each batch runs on each stage: arrays of shape (batches, stages)."""

    starts: np.ndarray
    ends: np.ndarray

    @property
    def makespan(self) -> float:
        return float(self.ends[-1, -1])

    @property
    def bubble_share(self) -> float:
        """Idle time over (stages x makespan)."""
        available = self.ends.shape[1] * self.makespan
        return 1.0 - float((self.ends - self.starts).sum()) / available if available else 0.0


def passage(
    times: np.ndarray,
    transfer: float = 0.0,
    host: float = 0.0,
    slots: int | None = None,
    returns: Sequence[int] | None = None,
) -> Passage:
    """Run the batches in FIFO order; times has shape (batches, stages).

    A batch starts on a stage when the stage has finished the batch before and the batch, having
    left the stage before, arrived after `transfer`. On the first stage it also waits for the tokens
    of batch returns[k] (-1: none) and, with at most `slots` batches in flight, for batch k - slots:
    both count from the end on the last stage, plus `transfer` and `host`.
    """
    batches, stages = times.shape
    checked_size(batches, stages)
    window, free = slots or batches, [0.0] * stages
    back: list[float] = []
    starts: list[list[float]] = []
    needs = returns if returns is not None else [-1] * batches
    for k, row in enumerate(times.tolist()):
        ready = max(
            back[needs[k]] if needs[k] >= 0 else 0.0, back[k - window] if k >= window else 0.0
        )
        begun = []
        for i, duration in enumerate(row):
            start = max(free[i], ready)
            free[i] = start + duration
            ready = free[i] + transfer
            begun.append(start)
        back.append(ready + host)
        starts.append(begun)
    begun_at = np.array(starts)
    return Passage(begun_at, begun_at + times)


def checked_size(batches: int, stages: int) -> None:
    """Refuses what would take minutes, before any memory is laid out for it."""
    if batches * stages > MAX_CELLS:
        raise InputError(
            f"batches x stages must be at most {MAX_CELLS:,}, but got {batches:,} x {stages:,}; cut"
            " fewer chunks or rounds"
        )


def token_periods(passage: Passage, returns: Sequence[int]) -> np.ndarray:
    """For each batch that waited for another's tokens: the time between their ends on the last
    stage.
    """
    needs = np.asarray(returns)
    k = np.flatnonzero(needs >= 0)
    last = passage.ends[:, -1]
    return np.asarray(last[k] - last[needs[k]])


def settled_periods(passage: Passage, returns: Sequence[int]) -> np.ndarray:
    """Of each ring of decode batches, its last period: what a token round takes once filling is
    over.
    """
    needs = np.asarray(returns)
    last = np.setdiff1d(np.flatnonzero(needs >= 0), needs[needs >= 0])
    ends = passage.ends[:, -1]
    return np.asarray(ends[last] - ends[needs[last]])


def ring_period(
    group_times: Sequence[float], stages: int, transfer: float = 0.0, host: float = 0.0
) -> float:
    """Time of one token round of decode groups on stages of equal speed.

    Formula: max(sum tau, p max tau + p c + host)
    Assumes: equal stages; group times constant over rounds; enough slots for all groups.
    """
    return max(math.fsum(group_times), stages * max(group_times) + stages * transfer + host)


def fixed_chunks(prompt_tokens: int, chunk_tokens: int) -> list[int]:
    """Equal chunks; the last takes what is left."""
    full, rest = divmod(prompt_tokens, chunk_tokens)
    return [chunk_tokens] * full + [rest] * (rest > 0)


def dynamic_chunks(
    prompt_tokens: int,
    base_tokens: int,
    per_token: float,
    per_token_squared: float,
    smooth: float = 0.75,
    align: int = 64,
    most: int = MAX_CELLS,
) -> list[int]:
    """Chunks of nearly equal time, by the rule of SGLang's dynamic chunking (docs.sglang.io,
    pipeline parallelism for long context).

    With f(l) = a l^2 + b l the time of a prefix, the next chunk x after l tokens solves f(l + x) -
    f(l) = f(base); it is smoothed to base + smooth (x - base), kept at base / 4 or more, cut down
    to whole tokens and to a multiple of `align`. More than `most` chunks are refused. Cutting down
    is literal: a solution of 4095.999... from rounding becomes 4032, there as here.
    """
    a, b, chunks, done = per_token_squared, per_token, [], 0
    target = a * base_tokens * base_tokens + b * base_tokens
    while done < prompt_tokens:
        slope = 2 * a * done + b
        # NOTE: a share of the quadratic term below 1e-9 drowns in the rounding of the root; the
        # line is exact enough there
        exact = (
            (math.sqrt(slope * slope + 4 * a * target) - slope) / (2 * a)
            if a * base_tokens > 1e-9 * slope
            else base_tokens
        )
        smoothed = max(base_tokens + smooth * (exact - base_tokens), base_tokens / 4)
        chunk = min(max(int(smoothed) // align * align, align), prompt_tokens - done)
        chunks.append(chunk)
        if len(chunks) > most:
            raise InputError(
                f"a prompt must be cut into at most {most:,} chunks, but {prompt_tokens:,} tokens"
                " take more; cut larger"
            )
        done += chunk
    return chunks


def chunk_times(
    chunks: Sequence[int], constant: float, per_token: float, per_token_squared: float
) -> np.ndarray:
    """Time of each chunk on one stage: constant + b x + a ((l + x)^2 - l^2), with l the tokens
    before it.
    """
    x = np.asarray(chunks, dtype=float)
    before = np.cumsum(x) - x
    return np.asarray(constant + per_token * x + per_token_squared * x * (2 * before + x))
