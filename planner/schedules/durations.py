"""Durations of stages, from times of one full 1/p of the model: a chunk takes t / v."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.action import Order
from planner.errors import InputError

Floats = NDArray[np.float64]


def stage_durations(
    order: Order,
    v: int,
    forward: float,
    input_grad: float,
    weight_grad: float,
    stage_scale: Sequence[float] | None = None,
    head_extra: float = 0.0,
) -> Floats:
    """(S, 4) durations for the simulator: forward, fused backward, input gradient, weight gradient.

    stage_scale: a factor a rank, or one a stage. head_extra: the LM head and loss, this share of a
    full 1/p of the model (not / v), on the last stage of every chain. Raises InputError.
    """
    full = np.array([forward, input_grad + weight_grad, input_grad, weight_grad])
    return full * _sizes(order, v, stage_scale, head_extra)[:, None]


def pair_durations(
    order: Order,
    v: int,
    pair: float,
    stage_scale: Sequence[float] | None = None,
    head_extra: float = 0.0,
) -> Floats:
    """(S,) durations of overlapped pairs from the time of a pair of one full 1/p of the model."""
    return pair * _sizes(order, v, stage_scale, head_extra)


def _sizes(order: Order, v: int, stage_scale: Sequence[float] | None, head_extra: float) -> Floats:
    """(S,) how many full 1/p of the model each stage is."""
    return _scale(order, stage_scale) / v + head_extra * (order.next_stage < 0)


def _scale(order: Order, stage_scale: Sequence[float] | None) -> Floats:
    if stage_scale is None:
        return np.ones(order.stages)
    scale = np.asarray(stage_scale, float)
    if len(scale) == order.stages:
        return scale
    if len(scale) == order.ranks:
        return scale[order.rank_of_stage]
    raise InputError(
        f"stage scale must have one factor a rank ({order.ranks}) or a stage ({order.stages}), but"
        f" got {len(scale)}"
    )
