"""Rules that a launch breaks, by the framework's version, each with the smallest changes that let
it run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.advice import nearby_layouts
from planner.advice.findings import Finding, Way
from planner.advice.flag_names import MEGATRON, changed, flag, said
from planner.advice.nearby_layouts import Near
from planner.interpret.interpret import Launch
from planner.rules.rule import Breach
from planner.rules.table import breaches
from planner.specs.versions import KNOWN

MAX_WAYS = 4
GROUPS = "gpus are tp * pp * dp * cp"
BATCH = ("batch is dp * mbs * m", "micro-batches interleave")
"""Rules that another global batch, or another accumulation, would keep."""
LEGAL = ". Legal would be: "
UNSEEN = {
    "layers split over stages": (
        "versions before 0.13 drop the rest in silence: of {layers} layers they build {built}"
    ),
}
COSTS = {
    "m": 0,
    "gbs": 40,
    "gpus": 50,
    "offload": 12,
    "cp": 8,
    "zero": 4,
    "recompute": 5,
    "tp": 6,
    "pp": 6,
    "etp": 3,
}
"""How much a change asks of the person: what changes learning or the hardware comes last."""


def findings(launch: Launch) -> list[Finding]:
    """One finding a broken rule, with the legal layouts near by."""
    broken = breaches(launch.recipe, launch.layout)
    if not broken:
        return _other_versions(launch)
    names = [breach.rule for breach in broken]
    return _once(
        [
            _finding(
                launch,
                breach,
                ways(launch, (breach.rule,), tuple(name for name in names if name != breach.rule)),
            )
            for breach in broken
        ]
    )


def joint(launch: Launch) -> Way | None:
    """The mildest changes that keep all rules at once, and fit where any do; None where nothing is
    broken or nothing near helps.
    """
    broken = tuple(breach.rule for breach in breaches(launch.recipe, launch.layout))
    found = ways(launch, broken) if broken else []
    return way(launch, found[0]) if found else None


def ways(launch: Launch, rules: tuple[str, ...], waived: tuple[str, ...] = ()) -> list[Near]:
    """Layouts close by that keep the rules: those that fit first, then the mildest and fewest
    changes, then the fastest.

    What is waived may stay broken: it has its own way out.
    """
    found = nearby_layouts.around(launch.recipe, launch.layout, 1, waived)
    if set(rules) & set(BATCH):
        found += nearby_layouts.batches(launch.recipe, launch.layout, waived) + _accumulated(
            launch, waived
        )
    if not any(one.fits for one in found) and not (found and waived):
        found += nearby_layouts.around(launch.recipe, launch.layout, 2, waived)
    return sorted(
        found, key=lambda one: (not one.fits and launch.sized, _cost(launch, one), one.step_s)
    )


def _accumulated(launch: Launch, waived: tuple[str, ...]) -> list[Near]:
    """DeepSpeed: the stated batch kept by another accumulation."""
    if launch.recipe.framework != "deepspeed":
        return []
    steps = launch.recipe.global_batch_size // (launch.layout.dp * launch.layout.mbs)
    other = replace(launch.layout, m=max(steps, 1))
    return [
        replace(neighbour, words={"m": other.m})
        for neighbour in nearby_layouts.around(launch.recipe, other, 0, waived)
    ]


def _cost(launch: Launch, neighbour: Near) -> int:
    """Flags to change, the harder ones dearer."""
    return sum(
        COSTS.get(word, 2) for word in neighbour.words if not word.startswith("recompute_")
    ) + len(changed(launch, neighbour.words))


def _finding(launch: Launch, broken: Breach, near: list[Near]) -> Finding:
    offered = [*_distinct(launch, near), *_whole_groups(launch, broken)][:MAX_WAYS]
    note = _note(launch, broken)
    listed = "; ".join(
        said(launch.reading.kind, one.values) + (f" ({one.says})" if one.says else "")
        for one in offered
    )
    legal = f"{LEGAL}{listed}" if listed else ""
    return Finding(
        "error",
        broken.rule,
        f"{broken.message}{_values(launch, broken)}{note}{legal}",
        tuple(offered),
    )


def _once(found: list[Finding]) -> list[Finding]:
    """Rules that one knob breaks have the same ways out: the list stands with the first that has
    them all.
    """
    listed: list[tuple[set[str], str]] = []
    out = []
    for one in found:
        message, _, ways_out = one.message.partition(LEGAL)
        each = set(ways_out.split("; ")) if ways_out else set()
        above = next((rule for known, rule in listed if each and each <= known), None)
        listed.append((each, one.rule))
        out.append(
            replace(one, message=f"{message}. The ways out are among those of: {above}")
            if above
            else one
        )
    return out


def _whole_groups(launch: Launch, broken: Breach) -> list[Way]:
    """GPU counts next to the stated one that tp x pp x cp divides."""
    unit = launch.layout.tp * launch.layout.pp * launch.layout.cp
    if broken.rule != GROUPS or launch.recipe.gpus % unit == 0:
        return []
    below = launch.recipe.gpus // unit * unit
    return [
        Way({"launch.gpus": count}, f"{count} GPUs") for count in (below, below + unit) if count
    ]


def _values(launch: Launch, broken: Breach) -> str:
    """Where the values come from that the sentence names."""
    text = f"{broken.rule} {broken.message}".replace("=", " ").replace("*", " ").split()
    named = [
        word
        for word in ("tp", "pp", "ep", "etp", "cp")
        if word in text and MEGATRON[word] in launch.reading.values
    ]
    places = [
        f"{flag(launch.reading.kind, MEGATRON[word])}"
        f" from {launch.reading.values[MEGATRON[word]].where}"
        for word in named
        if launch.reading.values[MEGATRON[word]].where
    ]
    defaulted = (
        "etp" in text
        and "expert_tensor_parallel_size" not in launch.reading.values
        and launch.layout.etp > 1
    )
    places += (
        ["--expert-tensor-parallel-size defaults to the tensor-parallel size"] if defaulted else []
    )
    return f" [{', '.join(places)}]" if places else ""


def _note(launch: Launch, broken: Breach) -> str:
    text = UNSEEN.get(broken.rule, "")
    if not text or launch.recipe.framework != "megatron":
        return ""
    layers, pp = launch.recipe.model.num_layers, launch.layout.pp
    return "; " + text.format(layers=layers, built=layers // pp * pp)


def _distinct(launch: Launch, near: list[Near]) -> list[Way]:
    """The first of each kind of change."""
    kinds: dict[frozenset[str], Near] = {}
    for neighbour in near:
        kinds.setdefault(
            frozenset(word for word in neighbour.words if neighbour.words[word]), neighbour
        )
    return [way(launch, one) for one in list(kinds.values())[:MAX_WAYS]]


def way(launch: Launch, neighbour: Near) -> Way:
    """A layout near by as values to set, with what it gives."""
    values = changed(launch, neighbour.words)
    if not launch.sized:
        return Way(values)
    fits = f"{neighbour.memory_gib:.1f} GiB" + (
        ""
        if neighbour.fits
        else f", out of memory with probability {neighbour.oom_probability:.0%}"
    )
    return Way(
        values,
        f"{_stages(neighbour)}a step of {neighbour.step_s:.3g} s, {fits}",
        neighbour.step_s,
        neighbour.memory_gib,
    )


def _stages(neighbour: Near) -> str:
    """Layers of each stage, where an end is stated: `stages of 12/12/12/10 layers, `."""
    first, last, pp = (
        neighbour.layout.first_layers,
        neighbour.layout.last_layers,
        neighbour.layout.pp,
    )
    if (
        not (first or last)
        or not {"first_layers", "last_layers"} & neighbour.words.keys()
        or pp > 16
    ):
        return ""
    middle = pp - (first > 0) - (last > 0)
    each = (neighbour.recipe.model.num_layers - first - last) // max(middle, 1)
    listed = [first] * (first > 0) + [each] * middle + [last] * (last > 0)
    return f"stages of {'/'.join(map(str, listed))} layers, "


def _other_versions(launch: Launch) -> list[Finding]:
    """Where the version is not stated: rules of other versions that would refuse the launch."""
    if launch.values["framework_version"].origin != "default":
        return []
    own: dict[str, list[Any]] = {}
    for version in KNOWN[launch.recipe.framework]:
        other = launch.recipe.model_copy(update={"framework_version": version})
        for broken in breaches(other, launch.layout):
            own.setdefault(broken.rule, []).append((version, broken.message))
    return [
        Finding(
            "warning",
            rule,
            f"{launch.recipe.framework} {', '.join(version for version, _ in found)} refuses it:"
            f" {found[0][1]}; {launch.recipe.framework_version} is taken, as the file states no"
            " version",
        )
        for rule, found in own.items()
    ]
