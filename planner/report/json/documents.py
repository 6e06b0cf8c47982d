"""Answers as the JSON documents that other programs read. Numbers are SI or have the unit in the
name; a missing value is None.
"""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from planner.answers import Emitted, Explanation, Known, Recommendation, Sweep, SweepRow
from planner.cost.goodput import Goodput
from planner.cost.named import named
from planner.rules.rule import Breach
from planner.search import Change, Plan, SearchResult
from planner.specs.recipe import Recipe


def recommendation(answer: Recommendation) -> dict[str, Any]:
    found = answer.search
    return {
        "question": question(answer.recipe),
        "search": None if found is None else search(found),
        "plans": [] if found is None else [plan(one) for one in found.plans],
        "nearest": (
            None
            if found is None or found.plans or found.nearest is None
            else [nearest(one) for one in found.nearest]
        ),
        "min_gpus": answer.min_gpus,
        "limits": None if found is None else found.limits,
        "files": list(answer.files),
        "refused": answer.refused or None,
        "goodput": goodput(answer.goodput),
    }


def plan(one: Plan) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "layout": one.layout.named(),
        "estimate": named(one.estimate),
        "why": list(one.why),
    }


def nearest(one: Change) -> dict[str, Any]:
    return {"change": one.change, "layout": one.layout.named(), "estimate": named(one.estimate)}


def question(recipe: Recipe) -> dict[str, Any]:
    """The question as it was understood, defaults filled in."""
    return {
        "model": recipe.model.name,
        "cluster": recipe.hardware.name,
        "gpus": recipe.gpus,
        "seq_length": recipe.seq_length,
        "global_batch_size": recipe.global_batch_size,
        "precision": recipe.precision,
        "framework": recipe.framework,
        "framework_version": recipe.framework_version,
        "stack": recipe.stack.name,
        "attention": recipe.attention,
        "optimizer": recipe.optimizer,
        "lora_rank": recipe.lora.rank if recipe.lora else None,
        "lora_targets": list(recipe.lora.targets) if recipe.lora else None,
        "lora_base": recipe.lora.base if recipe.lora else None,
        "frozen": list(recipe.frozen),
        "packing": recipe.packing,
        "mean_length": recipe.mean_length,
        "assumed": list(recipe.assumed),
    }


def search(found: SearchResult) -> dict[str, Any]:
    return {
        "enumerated": found.enumerated,
        "legal": found.legal,
        "fit": found.fit,
        "removed": dict(found.removed),
        "estimated": found.estimated,
        "estimate_seconds": found.estimate_seconds,
        "seconds": found.seconds,
    }


def explanation(answer: Explanation) -> dict[str, Any]:
    return {
        "question": question(answer.recipe),
        "layout": answer.layout.named(),
        "estimate": named(answer.estimate),
        "breaches": breaches(answer.breaches),
        "beside": [
            {"schedule": one.schedule, "in_flight": one.in_flight, "estimate": named(one.estimate)}
            for one in answer.beside
        ],
        "goodput": goodput(answer.goodput),
    }


def goodput(found: Goodput | None) -> dict[str, Any] | None:
    """Plain numbers; None when the question says nothing of failures, and for the days of a run
    that never ends.
    """
    if found is None:
        return None
    plain = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in asdict(found).items()
    }
    return {name: None if value == inf else value for name, value in plain.items()}


def breaches(broken: tuple[Breach, ...]) -> list[dict[str, str]]:
    return [{"rule": one.rule, "message": one.message} for one in broken]


def sweep(answer: Sweep) -> dict[str, Any]:
    return {"question": question(answer.recipe), "sweep": [_sweep_row(row) for row in answer.rows]}


def _sweep_row(row: SweepRow) -> dict[str, Any]:
    return {
        "words": dict(row.words),
        "layout": row.layout.named() if row.layout else None,
        "estimate": named(row.estimate) if row.estimate else None,
        "breaches": breaches(row.breaches),
    }


def emitted(answer: Emitted) -> dict[str, Any]:
    """Paths when the files were written, else their texts; script_needed is None: the files run as
    they are.
    """
    return {
        "files": list(answer.files),
        "texts": {} if answer.files else dict(answer.texts),
        "script_needed": None,
    }


def known(answer: Known) -> dict[str, Any]:
    """One document as it is, or all of a kind under that kind's name."""
    return (
        dict(answer.documents[0])
        if answer.one
        else {answer.kind: [dict(one) for one in answer.documents]}
    )
