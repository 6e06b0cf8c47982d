"""How much of the time a long run trains: failures, the work they undo, and checkpoints against
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.params.trained import trained_total
from planner.layout import Numeric
from planner.specs.recipe import Recipe
from planner.units import GB

_NEWTON = 30
"""Newton steps: the start is above the root of a concave function, so they fall to it and stay."""
STORAGE_BYTES_PER_S = 2000 * GB / 16_384
"""A GPU's part of what storage sustains: 2 TB/s for 16,384 GPUs, [grattafiori2024] sec. 3.3.1."""
SAVED_BYTES = 14.0
"""Of a trained parameter: 16-bit weight, fp32 master and two moments."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """A run whose GPUs fail: what checkpoints cost and save."""

    mtbf_s: Numeric
    """Mean time between two interruptions of the whole run: that of one GPU over the number of
    GPUs.
    """
    checkpoint_s: Numeric
    """How long training stands still for one checkpoint."""
    restart_s: Numeric
    """From an interruption until the state of the last checkpoint is loaded and training goes on.
    """
    interval_s: Numeric
    """Training between two checkpoints, in whole steps."""
    interval_steps: Numeric
    goodput_share: Numeric
    """Of the time, what training keeps."""
    checkpoint_share: Numeric
    """Of the time, writing checkpoints that are kept."""
    lost_share: Numeric
    """Of the time, restarts and work done again."""
    tokens_per_s: Numeric
    """Of all GPUs, failures counted."""
    days_per_trillion_tokens: Numeric
    assumed: tuple[str, ...] = ()
    """What was not stated."""


def save_s(recipe: Recipe) -> float:
    """How long one checkpoint halts training where the question does not say.

    Formula: 14 P / (0.122 GB/s gpus), P the trained parameters
    Source:  [grattafiori2024] sec. 3.3.1: 2 TB/s sustained for 16,384 GPUs; 14 bytes derived: a
             16-bit weight, fp32 master and two moments of Adam
    Assumes: training stands still until all is written; storage grows with the GPUs; Adam's states
             whatever the optimizer; frozen weights are not written.
    """
    return trained_total(recipe) * SAVED_BYTES / (STORAGE_BYTES_PER_S * recipe.gpus)


def interval_s(mtbf_s: Numeric, checkpoint_s: Numeric) -> Numeric:
    """Training between two checkpoints that loses least; first order sqrt(2 C M).

    Formula: M u, where 1 - u = exp(-(u + C/M)), C a checkpoint, M the mean time between
             interruptions
    Source:  [daly2006] the optimum of its complete model; [young1974] the first order
    Assumes: interruptions at random with a constant rate; they also strike checkpoints.
    """
    written = np.asarray(checkpoint_s) / mtbf_s
    ratio = np.minimum(np.sqrt(2 * written), 1.0)
    for _ in range(_NEWTON):
        gone = np.exp(-(ratio + written))
        ratio = np.clip(ratio + (1 - ratio - gone) / np.maximum(1 - gone, 1e-300), 0.0, 1.0)
    return ratio * mtbf_s


def goodput_share(
    mtbf_s: Numeric, checkpoint_s: Numeric, restart_s: Numeric, between_s: Numeric
) -> Numeric:
    """Training that is kept over the time that it takes, with so much training between two
    checkpoints.

    Formula: I / (M exp(R/M) (exp((I + C)/M) - 1)), I the training between checkpoints, R a restart
    Source:  [daly2006] complete model
    Assumes: interruptions at random with a constant rate, which also strike checkpoints and
             restarts.
    """
    block = (np.asarray(between_s) + checkpoint_s) / mtbf_s
    return between_s / mtbf_s * np.exp(-restart_s / mtbf_s - block) / -np.expm1(-block)


def goodput(
    gpus: int,
    gpu_mtbf_s: float,
    checkpoint_s: float,
    restart_s: float,
    step_s: Numeric,
    tokens: int,
) -> Goodput:
    """A run of steps of so many seconds and tokens on so many GPUs, with checkpoints where they
    lose least.

    Formula: M = M of one GPU / GPUs; interval_s() in whole steps; tokens a second = tokens / step *
             goodput_share()
    Source:  [daly2006]
    Assumes: GPUs fail apart; every failure interrupts the whole run; nothing trains on in its
             place.
    """
    mtbf_s = gpu_mtbf_s / gpus
    steps = np.maximum(np.rint(interval_s(mtbf_s, checkpoint_s) / step_s), 1)
    between = steps * step_s
    share = goodput_share(mtbf_s, checkpoint_s, restart_s, between)
    written = share * checkpoint_s / between
    speed = tokens / step_s * share
    with np.errstate(divide="ignore"):
        days = 1e12 / np.float64(speed) / 86400
    return Goodput(
        mtbf_s=mtbf_s,
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
        interval_s=between,
        interval_steps=steps,
        goodput_share=share,
        checkpoint_share=written,
        lost_share=1 - share - written,
        tokens_per_s=speed,
        days_per_trillion_tokens=days,
    )
