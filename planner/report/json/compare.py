"""The answer of `compare` as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.advice.comparison import Comparison, Row
from planner.cost.named import named
from planner.report.json.parts import goodput, kinds
from planner.specs.switches.table import settings_of


def document(answer: Comparison) -> dict[str, Any]:
    """A row a question; one without a plan has nulls and says why in `fault`."""
    return {"rows": [row_document(row) for row in answer.rows], "assumed": list(answer.assumed)}


def row_document(row: Row) -> dict[str, Any]:
    recipe, spent, question = row.recipe, row.spent, row.words
    return {
        "name": row.name,
        "model": recipe.model.name if recipe else None,
        "cluster": recipe.hardware.name if recipe else question.get("cluster"),
        "gpus": recipe.gpus if recipe else question.get("gpus"),
        "seq_length": recipe.seq_length if recipe else question.get("seq_length"),
        "precision": recipe.precision if recipe else question.get("precision"),
        "stack": recipe.software.name if recipe else question.get("stack"),
        "framework_version": (
            recipe.framework_version if recipe else question.get("framework_version")
        ),
        "switches": settings_of(recipe.software) if recipe else None,
        "global_batch_size": recipe.global_batch_size if recipe else None,
        "layout": row.layout.named() if row.layout else None,
        "estimate": named(row.estimate) if row.estimate else None,
        "kinds": kinds(recipe, row.layout) if recipe and row.layout else [],
        "limits": row.limits or None,
        "days_per_trillion_tokens": spent.days if spent else None,
        "gpu_hours_per_trillion_tokens": spent.gpu_hours if spent else None,
        "cost_per_trillion_tokens": spent.usd if spent else None,
        "price_usd_per_gpu_hour": spent.usd_per_gpu_hour if spent else None,
        "energy_mwh_per_trillion_tokens": spent.energy_mwh if spent else None,
        "scaling_efficiency": row.scaling,
        "goodput": goodput(row.goodput),
        "changes": list(row.changes),
        "numerics": {"held": [asdict(held) for held in row.held]},
        "fault": row.fault or None,
    }
