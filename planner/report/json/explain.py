"""The answer of `explain` as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.answers import Explanation
from planner.cost.named import named
from planner.report.json.parts import breaches, goodput, question, schedules
from planner.specs.switches.table import settings_of


def document(answer: Explanation) -> dict[str, Any]:
    return {
        "question": question(answer.recipe),
        "software": answer.recipe.versions.stated(),
        "layout": answer.layout.named(),
        "estimate": named(answer.estimate),
        "numerics": {"held": [asdict(held) for held in answer.held]},
        "kinds": [asdict(kind) for kind in answer.kinds],
        "switches": {
            "settings": settings_of(answer.recipe.software),
            "others": [gain.to_dict() for gain in answer.switches],
        },
        "breaches": breaches(answer.breaches),
        "schedules": schedules(answer.schedules),
        "goodput": goodput(answer.goodput),
    }
