"""Estimates of many single layouts, shared among the processor's cores: automatic schedules take a tenth of a second each."""

from __future__ import annotations

import os
import sys
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


def each(asked: list[Asked]) -> list[Estimate | InputError]:
    """The exact estimate of every layout, in order; an InputError is an answer too."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if len(asked) <= FEW or cores == 1:
        return [one(pair) for pair in asked]
    try:
        with ProcessPoolExecutor(min(cores, 8), mp_context=get_context("fork")) as pool:
            return list(pool.map(one, asked, chunksize=4))
    except (OSError, BrokenProcessPool):  # a machine that allows no further processes
        return [one(pair) for pair in asked]


def one(pair: Asked) -> Estimate | InputError:
    recipe, layout = pair
    try:
        return estimate(recipe, layout, exact=True)
    except InputError as fault:
        return fault
