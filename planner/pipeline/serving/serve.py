"""Forward-only pipelines: a scenario becomes batches, passes the stages, and is answered. Times in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.pipeline.serving.passage import (
    MAX_CELLS,
    Passage,
    checked_size,
    chunk_times,
    dynamic_chunks,
    fixed_chunks,
    passage,
    settled_periods,
    token_periods,
)
from planner.pipeline.serving.scenario import BatchScenario, ServingScenario, StageCost


@dataclass(frozen=True, slots=True)
class Batches:
    """The lowest form: times on a plain stage (batches,), whose tokens each waits for, and the
    prompt's chunks.
    """

    times_ms: np.ndarray
    returns: tuple[int, ...]
    chunks: tuple[int, ...] | None = None
    """Tokens of each prefill chunk; none: not known."""
    last_prefill: int | None = None
    """The batch that ends the prompt."""
    decodes: np.ndarray | None = None
    """(batches,) which hold decode work alone; none: those that wait for tokens."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a forward-only pipeline does with its batches."""

    makespan_ms: float
    bubble_ratio: float
    """Idle time over (stages x makespan)."""
    max_over_mean: float
    """Largest batch time over the mean: what sets the bubble."""
    ttft_ms: float | None
    """End of the last prefill chunk on the last stage."""
    tpot_ms: float | None
    """Period of a token round: the settled one where all rounds cost the same, else the mean."""
    tpot_max_ms: float | None
    tokens_per_s: float | None
    """Of all decode sequences together, at tpot_ms."""
    chunks: tuple[int, ...] | None
    passed: Passage | None
    """For the picture; none where two pools answer together."""
    returns: tuple[int, ...] = ()
    """For each batch the earlier one whose tokens it waits for; -1 none."""
    decodes: np.ndarray | None = None
    """(batches,) which hold decode work alone."""
    pools: tuple[tuple[str, Served], ...] = ()
    """Disaggregated: the prefill and the decode pool."""


def simulate_forward_only(
    scenario: BatchScenario | ServingScenario, cost: StageCost | None = None
) -> Served:
    """Answer a scenario; `cost` stands in where the scenario names a model and cluster instead."""
    if isinstance(scenario, BatchScenario):
        return _served(scenario, _stated(scenario))
    rates = scenario.cost or cost
    if rates is None:
        raise InputError(
            "a scenario needs cost (constant_ms, per_token_ms, per_token_squared_ms, decode_ms), or"
            " model and cluster"
        )
    if scenario.does == "disaggregated":
        return _two_pools(_pool(scenario, "prefill", rates), _pool(scenario, "decode", rates))
    return _pool(scenario, scenario.does, rates)


def alternatives(
    scenario: ServingScenario, cost: StageCost | None = None
) -> tuple[tuple[str, Served], ...]:
    """The other ways to serve the same: chunking whole, fixed and dynamic; decode groups; mixed
    against two pools.
    """
    ways = [*_chunkings(scenario), *_groupings(scenario), *_modes(scenario)]
    return tuple(
        (name, served) for name, way in ways if (served := _if_small(way, cost)) is not None
    )


def _if_small(way: ServingScenario, cost: StageCost | None) -> Served | None:
    """None where a way that nobody asked for takes more batches than are simulated."""
    try:
        return simulate_forward_only(way, cost)
    except InputError:
        return None


def _chunkings(scenario: ServingScenario) -> list[tuple[str, ServingScenario]]:
    if scenario.does == "decode":
        return []
    ways = [("one chunk", scenario.model_copy(update={"chunking": "none"}))]
    if scenario.chunk_tokens is not None:
        ways.append(
            (f"fixed {scenario.chunk_tokens:,}", scenario.model_copy(update={"chunking": "fixed"}))
        )
        dynamic = scenario.model_copy(update={"chunking": "dynamic"})
        ways += (
            [(f"dynamic {scenario.chunk_tokens:,}", dynamic)]
            if scenario.chunk_tokens >= scenario.align
            else []
        )
    return ways


def _groupings(scenario: ServingScenario) -> list[tuple[str, ServingScenario]]:
    total = sum(scenario.group_sizes)
    if scenario.does != "decode":
        return []
    counts = sorted(
        {
            count
            for count in (1, scenario.p // 2, scenario.p, scenario.p + 1, 2 * scenario.p)
            if 1 <= count <= total
        }
    )
    even = {"decode_sequences": total}
    return [
        (
            f"{count} group{'s' * (count > 1)}, even",
            scenario.model_copy(update={**even, "groups": count}),
        )
        for count in counts
    ]


def _modes(scenario: ServingScenario) -> list[tuple[str, ServingScenario]]:
    if scenario.does not in ("mixed", "disaggregated"):
        return []
    mixed = scenario.model_copy(update={"mode": "mixed", "merge": "every-group"})
    return [
        ("mixed, every group", mixed),
        ("mixed, one group", mixed.model_copy(update={"merge": "one-group"})),
        ("two pools", scenario.model_copy(update={"mode": "disaggregated"})),
    ]


def _pool(scenario: ServingScenario, mode: str, cost: StageCost) -> Served:
    make = {"prefill": _prefill, "decode": _decode, "mixed": _mixed}[mode]
    sequences = 0 if mode == "prefill" else sum(scenario.group_sizes)
    return _served(scenario, make(scenario, cost), sequences)


def _stated(scenario: BatchScenario) -> Batches:
    returns = scenario.returns or (-1,) * len(scenario.stage_times_ms)
    only_prefill = all(need < 0 for need in returns)
    return Batches(
        np.array(scenario.stage_times_ms), returns, None, len(returns) - 1 if only_prefill else None
    )


def _prefill(scenario: ServingScenario, cost: StageCost) -> Batches:
    chunks = _chunks(scenario, cost)
    times = chunk_times(chunks, cost.constant_ms, cost.per_token_ms, cost.per_token_squared_ms)
    return Batches(times, (-1,) * len(chunks), tuple(chunks), len(chunks) - 1)


def _decode(scenario: ServingScenario, cost: StageCost) -> Batches:
    constant = cost.constant_ms if cost.decode_constant_ms is None else cost.decode_constant_ms
    sizes = np.array(scenario.group_sizes, dtype=float)
    count, rounds = len(sizes), scenario.rounds
    checked_size(count * rounds, scenario.p)
    returns = tuple(max(k - count, -1) for k in range(count * rounds))
    return Batches(
        np.tile(constant + cost.decode_ms * sizes, rounds),
        returns,
        decodes=np.ones(count * rounds, bool),
    )


def _mixed(scenario: ServingScenario, cost: StageCost) -> Batches:
    """Prefill chunks ride with decode batches; a prompt longer than the rounds goes on alone."""
    prompt, ring = _prefill(scenario, cost), _decode(scenario, cost)
    step = 1 if scenario.merge == "every-group" else len(scenario.group_sizes)
    riding = np.arange(0, len(ring.times_ms), step)[: len(prompt.times_ms)]
    shared = cost.constant_ms if cost.decode_constant_ms is None else 0.0
    merged = ring.times_ms.copy()
    merged[riding] += prompt.times_ms[: len(riding)] - shared
    alone = prompt.times_ms[len(riding) :]
    last = len(merged) + len(alone) - 1 if len(alone) else int(riding[-1])
    decodes = np.ones(len(merged) + len(alone), bool)
    decodes[riding], decodes[len(merged) :] = False, False
    return Batches(
        np.concatenate([merged, alone]),
        ring.returns + (-1,) * len(alone),
        prompt.chunks,
        last,
        decodes,
    )


def _chunks(scenario: ServingScenario, cost: StageCost) -> list[int]:
    prompt, chunk = (
        scenario.prompt_tokens or 0,
        scenario.chunk_tokens or scenario.prompt_tokens or 1,
    )
    if scenario.cuts == "none":
        return [prompt]
    if scenario.cuts == "fixed":
        checked_size(-(-prompt // chunk), scenario.p)
        return fixed_chunks(prompt, chunk)
    return dynamic_chunks(
        prompt,
        chunk,
        cost.per_token_ms,
        cost.per_token_squared_ms,
        scenario.smooth,
        scenario.align,
        MAX_CELLS // scenario.p,
    )


def _served(
    scenario: BatchScenario | ServingScenario, batches: Batches, sequences: int = 0
) -> Served:
    scale = np.array(scenario.stage_scale or (1.0,) * scenario.p)
    checked_size(len(batches.times_ms), scenario.p)
    passed = passage(
        np.outer(batches.times_ms, scale),
        scenario.t_p2p,
        scenario.host,
        scenario.slots,
        batches.returns,
    )
    mean = float(batches.times_ms.mean())
    tpot, longest = _periods(passed, batches)
    return Served(
        makespan_ms=passed.makespan,
        bubble_ratio=passed.bubble_share,
        max_over_mean=float(batches.times_ms.max()) / mean if mean else 1.0,
        ttft_ms=(
            None if batches.last_prefill is None else float(passed.ends[batches.last_prefill, -1])
        ),
        tpot_ms=tpot,
        tpot_max_ms=longest,
        tokens_per_s=1000.0 * sequences / tpot if tpot and sequences else None,
        chunks=batches.chunks,
        passed=passed,
        returns=batches.returns,
        decodes=np.array(batches.returns) >= 0 if batches.decodes is None else batches.decodes,
    )


def _periods(passage: Passage, batches: Batches) -> tuple[float | None, float | None]:
    """(period of a token round, longest wait for a token)."""
    needs = np.array(batches.returns)
    waiting = np.flatnonzero(needs >= 0)
    if not len(waiting):
        return None, None
    every = token_periods(passage, batches.returns)
    steady = np.array_equal(batches.times_ms[waiting], batches.times_ms[needs[waiting]])
    settled = settled_periods(passage, batches.returns) if steady else every
    return float(settled.mean()), float(every.max())


def _two_pools(prefill: Served, decode: Served) -> Served:
    """Each pool runs for its own makespan; the bubble is the idle share of both together."""
    spans: Sequence[float] = (prefill.makespan_ms, decode.makespan_ms)
    idle = prefill.bubble_ratio * spans[0] + decode.bubble_ratio * spans[1]
    return Served(
        makespan_ms=max(spans),
        bubble_ratio=idle / sum(spans) if sum(spans) else 0.0,
        max_over_mean=max(prefill.max_over_mean, decode.max_over_mean),
        ttft_ms=prefill.ttft_ms,
        tpot_ms=decode.tpot_ms,
        tpot_max_ms=decode.tpot_max_ms,
        tokens_per_s=decode.tokens_per_s,
        chunks=prefill.chunks,
        passed=None,
        pools=(("prefill", prefill), ("decode", decode)),
    )
