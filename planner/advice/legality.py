"""Rules that a launch breaks, by the framework's version, each with the smallest changes that let
it run.
"""

from __future__ import annotations

from dataclasses import replace

from planner.advice import nearby_layouts
from planner.advice.findings import Finding, Way
from planner.advice.flag_names import MEGATRON, changed, flag, flag_line, switch_words
from planner.advice.nearby_layouts import Near
from planner.estimate import closed_form
from planner.interpret.interpret import Launch, computes
from planner.rules.rule import Breach
from planner.rules.table import breaches
from planner.specs.switches.switch import setting, words_of
from planner.specs.switches.table import BY_FRAMEWORK, with_switches
from planner.specs.versions import KNOWN

MAX_WAYS = 4
PRECISION = "GPU runs the precision"
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
    out = []
    for breach in broken:
        others = tuple(other.rule for other in broken if other.rule != breach.rule)
        out.append(_finding(launch, breach, ways(launch, (breach.rule,), others)))
    return _without_repeated_ways(out)


def way_out_of_all(launch: Launch) -> Way | None:
    """The mildest changes that keep all rules at once, and fit where any do; None where nothing is
    broken or nothing near helps. No layout mends a precision that the GPU lacks: it stays broken.
    """
    all_broken = breaches(launch.recipe, launch.layout)
    for breach in all_broken:
        completed = _completed(launch, breach)
        if completed:
            return completed[0]
    broken = [breach.rule for breach in all_broken]
    mended = tuple(rule for rule in broken if rule != PRECISION)
    waived = (PRECISION,) if PRECISION in broken else ()
    neighbours = ways(launch, mended, waived) if mended else []
    return way_to(launch, neighbours[0]) if neighbours else None


def ways(launch: Launch, rules: tuple[str, ...], waived: tuple[str, ...] = ()) -> list[Near]:
    """Layouts close by that keep the rules: those that fit first, then the mildest and fewest
    changes, then the fastest.

    What is waived may stay broken: it has its own way out.
    """
    recipe, layout = launch.recipe, launch.layout
    neighbours = nearby_layouts.around(recipe, layout, 1, waived)
    if set(rules) & set(BATCH):
        neighbours += nearby_layouts.batches(recipe, layout, waived)
        neighbours += _accumulated(launch, waived)
    if not any(near.fits for near in neighbours) and not (neighbours and waived):
        neighbours += nearby_layouts.around(recipe, layout, 2, waived)
    return sorted(
        neighbours,
        key=lambda near: (launch.sized and not near.fits, _cost(launch, near), near.step_s),
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
    words = [word for word in neighbour.words if not word.startswith("recompute_")]
    return sum(COSTS.get(word, 2) for word in words) + len(changed(launch, neighbour.words))


def _finding(launch: Launch, broken: Breach, near: list[Near]) -> Finding:
    offered = [
        *_completed(launch, broken),
        *_distinct(launch, near),
        *_whole_groups(launch, broken),
    ][:MAX_WAYS]
    listed = []
    for way in offered:
        says = f" ({way.says})" if way.says else ""
        listed.append(flag_line(launch.reading.kind, way.values) + says)
    message = f"{broken.message}{_values(launch, broken)}{_note(launch, broken)}"
    if listed:
        message += LEGAL + "; ".join(listed)
    return Finding("error", broken.rule, message, tuple(offered))


def _without_repeated_ways(findings: list[Finding]) -> list[Finding]:
    """Rules that one knob breaks have the same ways out: the list stands with the first that has
    them all.
    """
    listed: list[tuple[set[str], str]] = []
    out = []
    for finding in findings:
        message, _, ways_out = finding.message.partition(LEGAL)
        each = set(ways_out.split("; "))
        above = [rule for known, rule in listed if each <= known]
        if ways_out and above:
            message = f"{message}. The ways out are among those of: {above[0]}"
            finding = replace(finding, message=message)
        out.append(finding)
        listed.append((each, finding.rule))
    return out


def _completed(launch: Launch, broken: Breach) -> list[Way]:
    """Of a rule of a switch that holds a set of words: the set with one word more, or one less,
    where that breaks nothing.
    """
    recipe, layout = launch.recipe, launch.layout
    for switch in BY_FRAMEWORK[recipe.framework].values():
        if not switch.words or broken.rule not in [need.name for need in switch.needs]:
            continue
        now = words_of(setting(recipe, switch.name, switch.default))
        more = [{*now, word} for word in switch.words if word not in now]
        less = [{*now} - {word} for word in now if len(now) > 1]
        ways = []
        for wanted in (*more, *less):
            value = "+".join(word for word in switch.words if word in wanted)
            other = recipe.model_copy(
                update={"software": with_switches(recipe.software, {switch.name: value})}
            )
            if breaches(other, layout):
                continue
            near = closed_form(other, layout)
            says = f"a step of {near.step_s:.3g} s, {near.memory_gib:.1f} GiB"
            words = switch_words(launch, {switch.name: value})
            ways.append(Way(words, says, float(near.step_s), float(near.memory_gib)))
        return ways
    return []


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
    values, kind = launch.reading.values, launch.reading.kind
    places = []
    for word in ("tp", "pp", "ep", "etp", "cp"):
        name = MEGATRON[word]
        if word in text and name in values and values[name].where:
            places.append(f"{flag(kind, name)} from {values[name].where}")
    if "etp" in text and MEGATRON["etp"] not in values and launch.layout.etp > 1:
        places.append("--expert-tensor-parallel-size defaults to the tensor-parallel size")
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
        kind = frozenset(word for word, value in neighbour.words.items() if value)
        kinds.setdefault(kind, neighbour)
    return [way_to(launch, neighbour) for neighbour in list(kinds.values())[:MAX_WAYS]]


def way_to(launch: Launch, neighbour: Near) -> Way:
    """A layout near by as values to set, with what it gives."""
    values = changed(launch, neighbour.words)
    if not launch.sized or not computes(launch.recipe):
        return Way(values)
    says = f"{_stages(neighbour)}a step of {neighbour.step_s:.3g} s, {neighbour.memory_gib:.1f} GiB"
    if not neighbour.fits:
        says += f", out of memory with probability {neighbour.oom_probability:.0%}"
    return Way(values, says, neighbour.step_s, neighbour.memory_gib)


def _stages(neighbour: Near) -> str:
    """Layers of each stage, where an end is stated: `stages of 12/12/12/10 layers, `."""
    layout = neighbour.layout
    first, last, pp = layout.first_layers, layout.last_layers, layout.pp
    changed_ends = {"first_layers", "last_layers"} & neighbour.words.keys()
    if not (first or last) or not changed_ends or pp > 16:
        return ""
    middle = pp - (first > 0) - (last > 0)
    each = (neighbour.recipe.model.num_layers - first - last) // max(middle, 1)
    listed = [first] * (first > 0) + [each] * middle + [last] * (last > 0)
    return f"stages of {'/'.join(map(str, listed))} layers, "


def _other_versions(launch: Launch) -> list[Finding]:
    """Where the version is not stated: rules of other versions that would refuse the launch."""
    recipe = launch.recipe
    if launch.values["framework_version"].origin != "default":
        return []
    versions: dict[str, list[str]] = {}
    messages: dict[str, str] = {}
    for version in KNOWN[recipe.framework]:
        other = recipe.model_copy(update={"framework_version": version})
        for broken in breaches(other, launch.layout):
            versions.setdefault(broken.rule, []).append(version)
            messages.setdefault(broken.rule, broken.message)
    return [
        Finding(
            "warning",
            rule,
            f"{recipe.framework} {', '.join(versions[rule])} refuses it: {message};"
            f" {recipe.framework_version} is taken, as the file states no version",
        )
        for rule, message in messages.items()
    ]
