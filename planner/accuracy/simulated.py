"""Estimates of many single layouts, shared among the processor's cores: automatic schedules take a
tenth of a second each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs.recipe import Recipe

MIN_PARALLEL = 16
"""So many are estimated sooner than processes start."""
Question = tuple[Recipe, Layout]


def each(questions: list[Question]) -> Iterator[Estimate | InputError]:
    """The exact estimate of every layout, in order; an InputError is an answer too. Other processes
    work before the first is asked for.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if len(questions) <= MIN_PARALLEL or cores == 1:
        return map(estimate_or_fault, questions)
    try:
        workers = min(cores, 8)
        pool = ProcessPoolExecutor(workers, mp_context=get_context("fork"))
        estimates = pool.map(
            estimate_or_fault, questions, chunksize=max(len(questions) // (4 * workers), 1)
        )  # neighbours often share an order
    except OSError:  # a machine that allows no further processes
        return map(estimate_or_fault, questions)
    pool.shutdown(wait=False)  # takes no more, but finishes these
    return _gathered(estimates, questions)


def _gathered(
    estimates: Iterator[Estimate | InputError], questions: list[Question]
) -> Iterator[Estimate | InputError]:
    """What the processes found; what a process that was killed left over is done here."""
    done = 0
    try:
        for answer in estimates:
            yield answer
            done += 1
    except BrokenProcessPool:
        yield from map(estimate_or_fault, questions[done:])


def estimate_or_fault(pair: Question) -> Estimate | InputError:
    recipe, layout = pair
    try:
        return estimate(recipe, layout, exact=True)
    except InputError as fault:
        return fault
