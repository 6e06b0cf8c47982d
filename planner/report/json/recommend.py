"""The answer of `recommend` as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.answers import Recommendation
from planner.cost.named import named
from planner.report.json.parts import goodput, question, schedules
from planner.search import Change, SearchResult
from planner.specs.switches.table import settings_of


def document(answer: Recommendation) -> dict[str, Any]:
    """Where no layout fits, `plans` is empty and `nearest` has the changes that let one fit,
    cheapest first.
    """
    result = answer.search
    nearest = None
    if result is not None and not result.plans and result.nearest is not None:
        nearest = [_change(change) for change in result.nearest]
    return {
        "question": question(answer.recipe),
        "software": answer.recipe.versions.stated(),
        "search": None if result is None else _search(result),
        "plans": [] if result is None else [plan.to_dict() for plan in result.plans],
        "switches": None if answer.best is None else _switches(answer),
        "numerics": {
            "held": [asdict(held) for held in answer.held],
            "offers": [offer.to_dict() for offer in answer.offers],
        },
        "nearest": nearest,
        "min_gpus": answer.min_gpus,
        "limits": None if result is None else result.limits,
        "files": list(answer.files),
        "refused": answer.refused or None,
        "goodput": goodput(answer.goodput),
        "schedules": schedules(answer.schedules),
    }


def _switches(answer: Recommendation) -> dict[str, Any]:
    """Every switch of the software as the first plan has it, and what other values would give."""
    return {
        "settings": settings_of(answer.recipe.software),
        "others": [gain.to_dict() for gain in answer.switches],
    }


def _search(result: SearchResult) -> dict[str, Any]:
    counts = result.counts
    return {
        "covered": counts.covered,
        "removed": dict(counts.removed),
        "too_large": counts.too_large,
        "slower": counts.slower,
        "computed": counts.computed,
        "simulated": result.simulated,
        "proved": result.proved,
        "switches": None if result.turned is None else dict(result.turned),
        "legal": result.legal,
        "seconds": result.seconds,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "change": change.change,
        "costs": change.costs,
        "layout": change.layout.named(),
        "estimate": named(change.estimate),
    }
