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

FEW = 16
"""So many are estimated sooner than processes start."""
Asked = tuple[Recipe, Layout]


def each(asked: list[Asked]) -> Iterator[Estimate | InputError]:
    """The exact estimate of every layout, in order; an InputError is an answer too. Other processes
    work before the first is asked for.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if len(asked) <= FEW or cores == 1:
        return map(one, asked)
    try:
        workers = min(cores, 8)
        pool = ProcessPoolExecutor(workers, mp_context=get_context("fork"))
        found = pool.map(
            one, asked, chunksize=max(len(asked) // (4 * workers), 1)
        )  # neighbours often share an order
    except OSError:  # a machine that allows no further processes
        return map(one, asked)
    pool.shutdown(wait=False)  # takes no more, but finishes these
    return _gathered(found, asked)


def _gathered(
    found: Iterator[Estimate | InputError], asked: list[Asked]
) -> Iterator[Estimate | InputError]:
    """What the processes found; what a process that was killed left over is done here."""
    done = 0
    try:
        for answer in found:
            yield answer
            done += 1
    except BrokenProcessPool:
        yield from map(one, asked[done:])


def one(pair: Asked) -> Estimate | InputError:
    recipe, layout = pair
    try:
        return estimate(recipe, layout, exact=True)
    except InputError as fault:
        return fault
