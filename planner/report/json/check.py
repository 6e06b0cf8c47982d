"""The answer of `check` as the JSON document that other programs read."""

from __future__ import annotations

from typing import Any

from planner.advice.findings import Checked, Finding
from planner.advice.flag_names import flags
from planner.cost.named import named
from planner.intake.reading import Value
from planner.report.json.parts import kinds, schedules
from planner.specs.named_software import spelled

BIG = 400
"""Characters of a value that is no plain figure: a whole config.json is not repeated."""


def document(answer: Checked) -> dict[str, Any]:
    launch = answer.launch
    kind = launch.reading.kind
    return {
        "file": answer.file,
        "kind": kind,
        "framework": launch.recipe.framework,
        "framework_version": launch.recipe.framework_version,
        "model": _model(answer) if launch.sized else None,
        "cluster": launch.recipe.hardware.name,
        "gpus": launch.recipe.gpus,
        "seq_length": launch.recipe.seq_length,
        "global_batch_size": launch.recipe.global_batch_size,
        "precision": launch.recipe.precision,
        "attention": launch.recipe.attention,
        "software": spelled(launch.recipe),
        "stack": launch.recipe.software.name,
        "layout": None if answer.guessed else launch.layout.named(),
        "values": {name: _value(value) for name, value in launch.values.items()},
        "unresolved": [
            {"name": value.name, "why": value.why, "where": value.where}
            for value in launch.unresolved
        ],
        "unknown": list(launch.reading.unknown),
        "notes": list(launch.reading.notes),
        "assumed": list(launch.assumed),
        "findings": [finding_document(finding, kind) for finding in answer.findings],
        "estimate": None if answer.estimate is None else named(answer.estimate),
        "kinds": [] if answer.estimate is None else kinds(launch.recipe, launch.layout),
        "best": (
            None
            if answer.best is None
            else {"layout": answer.best.layout.named(), "estimate": named(answer.best.estimate)}
        ),
        "schedules": schedules(answer.schedules),
        "measured": answer.measured,
        "oom": answer.oom,
        "verdict": answer.verdict,
        "fixed": (
            {"files": list(answer.fixed), "changes": answer.edits, "diff": answer.diff}
            if answer.fixed
            else None
        ),
    }


def finding_document(finding: Finding, kind: str) -> dict[str, Any]:
    """The cheapest way out as flags in `fix`, the others in `alternatives`; a flag that is to go
    has the value None.
    """
    ways = [
        {
            "fix": flags(kind, way.values),
            "gives": way.says or None,
            "step_s": way.step_s,
            "memory_gib": way.memory_gib,
        }
        for way in finding.ways
    ]
    return {
        "severity": finding.severity,
        "rule": finding.rule,
        "message": finding.message,
        "fix": ways[0]["fix"] if ways else {},
        "alternatives": ways[1:],
        "gain": finding.gain,
    }


def _value(value: Value) -> dict[str, Any]:
    return {"value": shown(value), "from": value.origin, "where": value.where}


def shown(item: Value) -> Any:
    """A value as JSON has it, a large one cut."""
    value = item.value
    big = isinstance(value, (dict, list)) and len(str(value)) > BIG
    return f"{str(value)[:BIG]} ..." if big else _plain(value)


def _plain(value: Any) -> Any:
    """JSON has no infinities, and dates are text."""
    if isinstance(value, float) and value - value != 0.0:
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _model(answer: Checked) -> dict[str, Any]:
    from planner.cost.params.layer import total_params

    model = answer.recipe.model
    return {
        **model.model_dump(mode="json", exclude={"source", "aliases", "note"}),
        "total_parameters": int(total_params(model)),
    }
