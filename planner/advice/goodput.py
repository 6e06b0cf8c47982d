"""Goodput of a plan: what a question states of failures and checkpoints, with published figures for
what it leaves out.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from planner.cost.goodput import Goodput, goodput, save_s
from planner.cost.terms import Estimate
from planner.specs.recipe import Recipe
from planner.specs.words import Question

HOUR = 3600.0
GPU_MTBF_HOURS = 54 * 24 * 16_384 / 419
"""Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs, arXiv 2407.21783 sec.
3.3.4; 50,700 hours of one GPU.
"""
RESTART_S = 600.0
"""Failures are found and diagnosed in less than ten minutes on average: MegaScale, arXiv 2402.15627
sec. 4.
"""


class Failures(NamedTuple):
    """What a run meets: seconds, and the sentences that say what was not stated."""

    gpu_mtbf_s: float
    checkpoint_s: float
    restart_s: float
    assumed: tuple[str, ...]


def failures(question: Question, recipe: Recipe) -> Failures | None:
    """None when the question says nothing of failures; else its figures, and published ones for
    those that it leaves out.
    """
    mtbf_hours, checkpoint_s, restart_s = (
        question.mtbf_hours,
        question.checkpoint_s,
        question.restart_s,
    )
    if mtbf_hours is None and checkpoint_s is None and restart_s is None:
        return None
    assumed = []
    if mtbf_hours is None:
        assumed.append(
            f"an interruption every {GPU_MTBF_HOURS:,.0f} hours of a GPU, as Llama 3 405B had"
        )
    saved_s = save_s(recipe)
    if checkpoint_s is None:
        assumed.append(
            f"checkpoints of {saved_s:.3g} s: 14 bytes a trained parameter at 0.12 GB/s a GPU, as"
            " Llama 3 405B"
        )
    if restart_s is None:
        restart_s = RESTART_S
        assumed.append(f"restarts of {RESTART_S:.0f} s, as MegaScale found failures")
    mtbf_s = (mtbf_hours or GPU_MTBF_HOURS) * HOUR
    return Failures(mtbf_s, checkpoint_s or saved_s, restart_s, tuple(assumed))


def of_plan(question: Question, recipe: Recipe, estimate: Estimate) -> Goodput | None:
    """Goodput of one estimate, when the question asks for it."""
    run = failures(question, recipe)
    if run is None:
        return None
    expected = goodput(
        recipe.gpus, run.gpu_mtbf_s, run.checkpoint_s, run.restart_s, estimate.step_s, recipe.tokens
    )
    plain = {f.name: getattr(expected, f.name) for f in fields(expected)}
    plain = {name: float(value) for name, value in plain.items() if name != "assumed"}
    return Goodput(**plain, assumed=run.assumed)
