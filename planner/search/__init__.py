"""The fastest layouts that fit, out of all that the menus of planner.enumerate combine to; and what
to say where none does.
"""

from __future__ import annotations

from planner.enumerate.menus import requested
from planner.search.answer import Change, Plan, SearchResult, cheapest_first
from planner.search.branch import Computed
from planner.search.nearest import fitting, legal_sample, min_gpus
from planner.search.plans import best_plan, search
from planner.search.switches import differing

__all__ = [
    "Change",
    "Computed",
    "Plan",
    "SearchResult",
    "best_plan",
    "cheapest_first",
    "differing",
    "fitting",
    "legal_sample",
    "min_gpus",
    "requested",
    "search",
]
