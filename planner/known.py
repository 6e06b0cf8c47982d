"""What is known by name: models, clusters, schedules, stacks, switches, each with its sources."""

from __future__ import annotations

from typing import Any

from planner.cost.params.layer import (
    active_params,
    layer_params,
    mtp_params,
    routed_layer_params,
    total_params,
)
from planner.cost.params.vision import tower_params
from planner.errors import unknown
from planner.specs import library
from planner.specs.layers import counts, kinds
from planner.specs.model import ModelSpec
from planner.specs.software import Software
from planner.specs.switches.switch import FIRST, NEVER, Switch
from planner.specs.versions import Version

Documents = tuple[dict[str, Any], ...]


def models(name: str | None = None) -> Documents:
    """Presets with their parameter counts; one of them (or a config.json) in full."""
    documents = map(library.model, library.models() if name is None else [name])
    return tuple(model.model_dump(mode="json") | _counts(model) for model in documents)


def _counts(model: ModelSpec) -> dict[str, Any]:
    """All parameters, those that a token uses, those of multi-token prediction, and by kind of
    layer how many layers and parameters there are and what the document states of it alone.
    """
    stated = {kind.name: kind.model_dump(mode="json", exclude_unset=True) for kind in model.kinds}
    each = zip(kinds(model).items(), counts(model), strict=True)
    return {
        "parameters": total_params(model),
        "active_parameters": active_params(model),
        "mtp_parameters": int(mtp_params(model)) if model.mtp_layers else None,
        "vision_parameters": tower_params(model.vision) if model.vision else None,
        "parameters_with_vision": (
            total_params(model) + tower_params(model.vision) if model.vision else None
        ),
        "kinds": {
            name: {"layers": layers, "parameters": _params(kind), **stated.get(name, {})}
            for (name, kind), layers in each
        },
    }


def _params(kind: ModelSpec) -> int:
    return int(layer_params(kind) + routed_layer_params(kind))


def clusters(name: str | None = None) -> Documents:
    """Hardware profiles: GPU, node, fabric, kernel rates, each group of figures with its source."""
    documents = map(library.hardware, library.clusters() if name is None else [name])
    return tuple(profile.model_dump(mode="json") for profile in documents)


def stacks(name: str | None = None, every: bool = False) -> Documents:
    """Training software and distributions of it: what they overlap, fuse and keep; with `every`
    those too that are there for published runs alone.
    """
    names = library.stacks() if every else library.offered_stacks()
    documents = map(library.stack, names if name is None else [name])
    return tuple(_stack(stack) for stack in documents)


def _stack(software: Software) -> dict[str, Any]:
    """The figures with their source, and what the name of a distribution stands for."""
    from planner.specs.distributions import named

    document: dict[str, Any] = software.model_dump(mode="json")
    distribution = named(software.name) if software.name != software.document else None
    if distribution is not None:
        document["source"] = f"{distribution.source}; figures: {software.source}"
    stands_for = distribution.says() if distribution else None
    return {"name": document["name"], "stands_for": stands_for, **document}


def switches(name: str | None = None, framework: str | None = None) -> Documents:
    """Switches of every framework, or of one, each with its values, its flags by version, what it
    needs, what it does to the arithmetic and to time and memory, and its source; then those that
    are not modelled, with the reason.
    """
    from planner.specs.switches.table import BY_FRAMEWORK, no_such, not_modelled

    if framework is not None and framework not in BY_FRAMEWORK:
        raise unknown("framework", framework, tuple(BY_FRAMEWORK))
    documents = [
        _switch(whose, switch)
        for whose, switches in BY_FRAMEWORK.items()
        for switch in switches.values()
        if framework in (None, whose) and (name is None or name.replace("-", "_") == switch.name)
    ]
    documents += [
        {"name": other, "framework": whose, "not_modelled": reason}
        for whose, reasons in not_modelled().items()
        for others, reason in reasons.items()
        for other in others.split(", ")
        if framework in (None, whose) and (name is None or name.replace("-", "_") == other)
    ]
    if not documents and framework is not None:
        raise no_such(str(name).replace("-", "_"), (framework,))
    if not documents:
        names = tuple(switch for switches in BY_FRAMEWORK.values() for switch in switches)
        raise unknown("switch", str(name), names)
    return tuple(documents)


def _kind(switch: Switch) -> str:
    """What a switch without values takes."""
    if switch.words:
        return "words"
    return "a share" if switch.share else "a number"


def _switch(framework: str, switch: Switch) -> dict[str, Any]:
    from planner.specs.switches.table import choices, shown

    written: dict[str, str] = {}
    for spelling in switch.spellings:
        words = [f"{key}={value}" for key, value in spelling.environment]
        words += [" ".join(flag) for flag in spelling.flags]
        if not words:
            continue
        versions = "" if spelling.since == FIRST else f"from {_version(spelling.since)} "
        versions += "" if spelling.before == NEVER else f"before {_version(spelling.before)} "
        label = shown(spelling.value) if switch.values else _kind(switch)
        earlier = f"{written[label]}; " if label in written else ""
        written[label] = f"{earlier}{versions}{' '.join(words)}"
    numerics: str = switch.arithmetic
    if switch.lossy:
        numerics += f"; lossy: {', '.join(shown(value) for value in switch.lossy)}"
    return {
        "name": switch.name,
        "framework": framework,
        "says": switch.help,
        "values": choices(switch),
        "default": shown(switch.default),
        "written": written,
        "needs": [need.name for need in switch.needs],
        "numerics": numerics,
        "effect": switch.says,
        "source": switch.source,
    }


def _version(version: Version) -> str:
    return ".".join(map(str, version))


def schedules(name: str | None = None) -> Documents:
    """Pipeline schedules, each with what its module says of it, and the stacks that can run it."""
    from planner.schedules.table import SCHEDULES

    if name is not None and name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    all_stacks = [library.stack(stack) for stack in library.offered_stacks()]
    documents = []
    for schedule in SCHEDULES if name is None else [name]:
        says = " ".join((SCHEDULES[schedule].says or "").split())
        able = [stack.name for stack in all_stacks if schedule in stack.schedules]
        documents.append({"name": schedule, "says": says, "stacks": able})
    return tuple(documents)
