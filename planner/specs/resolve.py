"""A question with every document loaded and every default chosen: the Recipe, and the one layout
that `explain` speaks of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, get_args

from planner.errors import InputError, unknown
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.specs import library, named_software, tuning
from planner.specs.distributions import named
from planner.specs.hardware import AMPERE, Gpu, HardwareProfile
from planner.specs.layers import has_indexer
from planner.specs.model import ModelSpec
from planner.specs.question import LAYERS, RANGED, SWITCHES, bounds, limits
from planner.specs.recipe import Precision, Recipe
from planner.specs.software import Software
from planner.specs.software_versions import (
    SoftwareVersions,
    container_named,
    containers,
    of_run,
)
from planner.specs.switches import table
from planner.specs.switches.megatron_kernels import sparse_kernels
from planner.specs.switches.switch import Switches, Value
from planner.specs.versions import OWN, numbers_of, version_of
from planner.specs.words import Question

TOKENS = 2**22
"""Default batch: about 4M tokens, what models of 7B to 400B are trained with."""
CLUSTER = "h100-sxm"
ON_PROCESSORS = {"torch": "torch-gloo"}
"""Where the profile is of a processor."""
VERSIONS = {"megatron": "0.19", "deepspeed": "0.19", "torch": "2.13"}
PRECISIONS: tuple[str, ...] = get_args(Precision)
ATTENTIONS = ("flash", "fused", "unfused")


class Chosen(NamedTuple):
    """A value, and the sentence that says it is a default ('' when it was stated)."""

    value: Any
    says: str


NO_BF16 = ("fp16", "fp32")
FREE: Switches = {
    "expandable_segments": True,
    "moe_router_fusion": True,
    "overlap_cpu_optimizer_d2h_h2d": True,
}
"""Switches that cost nothing on a GPU and keep the arithmetic: on, where the framework and version
have them, unless the question says otherwise.
"""


def recipe(question: Question) -> Recipe:
    """The question for the search. InputError when a name is unknown or words contradict one
    another.
    """
    if question.gpus is None:
        raise InputError("gpus must be stated, but got none; add --gpus N")
    return _recipe(named_software.expanded(question), question.gpus, 1)


def recipe_and_layout(question: Question) -> tuple[Recipe, Layout]:
    """The question that states one layout: degrees not stated are 1, dp follows from the GPUs, m
    from the batch.
    """
    question = named_software.expanded(question)
    degree = {word: _one(question, word) for word in RANGED}
    tp, pp, cp = degree["tp"] or 1, degree["pp"] or 1, degree["cp"] or 1
    gpus, dp = _gpus_and_dp(question.gpus, degree["dp"], tp, pp, cp)
    mbs, v = degree["mbs"] or 1, degree["v"] or 1
    unit = dp * mbs * (pp if v > 1 else 1)
    sized = (
        replace(question, global_batch_size=dp * mbs * degree["m"])
        if degree["m"] and not _batch_stated(question)
        else question
    )
    recipe = _recipe(sized, gpus, unit)
    m = _micro_batches(recipe.global_batch_size, dp, mbs, degree["m"])
    software = recipe.software
    knobs = {word: getattr(question, word) for word in (*SWITCHES, *LAYERS)}
    kept: dict[str, Any] = {word: int(x) for word, x in knobs.items() if x is not None}
    kept.setdefault("sp", int(tp > 1 and software.sequence_parallel))
    zero = software.default_stage if degree["zero"] is None else degree["zero"]
    schedule = SCHEDULE_CODE[question.schedule or ("interleaved" if v > 1 else "1f1b")]
    if question.group and v == 1:
        raise InputError(
            f"group must go with virtual stages, v above 1, but got group {question.group} and v 1;"
            " leave one out"
        )
    layout = Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=degree["ep"] or 1,
        etp=degree["etp"] or _etp(recipe, tp),
        v=v,
        mbs=mbs,
        m=m,
        zero=zero,
        hpz=degree["hpz"] or 1,
        cp_a2a=degree["cp_a2a"] or 1,
        offload=OFFLOAD_CODE[question.offload or "none"],
        schedule=schedule,
        stage_layout=question.stage_layout or "",
        **kept,
        **_recompute(question),
    )
    return recipe, layout


def _etp(question: Recipe, tp: int) -> int:
    """Megatron splits experts as it splits everything else unless told otherwise."""
    return tp if question.model.moe and question.framework == "megatron" else 1


def _recipe(question: Question, gpus: int, unit: int) -> Recipe:
    model = library.model(question.model)
    cluster = _cluster(question)
    hardware = library.hardware(cluster.value, question.set)
    if hardware.max_gpus and gpus > hardware.max_gpus:
        raise InputError(
            f"gpus must be at most the {hardware.max_gpus:,} that {hardware.name} has (max_gpus),"
            f" but got {gpus:,}"
        )
    software = _stack(question, hardware.gpu.architecture)
    _recompute(question)  # words that contradict one another are refused before any search
    precision = _precision(question, hardware)
    seq_length = _seq_length(question, model)
    batch = _batch(question, seq_length.value, gpus, unit)
    version, versions = _versions(question, software.framework)
    software, not_available = _switched(
        question,
        software,
        version,
        named_software.torchtitan_of(question),
        hardware.gpu.architecture,
        str(precision.value),
        has_indexer(model),
    )
    attention = _attention(question, software, hardware, str(precision.value))
    rates = Chosen(
        None,
        hardware.kernels.assumed and f"kernel rates of {hardware.name}: {hardware.kernels.assumed}",
    )
    note, other = Chosen(None, model.note), _requested(question, software)
    stands = Chosen(None, _stands_for(question, software, version))
    trained = tuning.trained(question, model, software, seq_length.value)
    return Recipe(
        **trained.words,
        hardware=hardware,
        gpus=gpus,
        seq_length=seq_length.value,
        global_batch_size=batch.value,
        precision=precision.value,
        framework_version=version,
        versions=versions,
        attention=attention.value,
        knobs=limits(question),
        max_memory_gib=question.max_memory_gib,
        assumed=(
            *(
                choice.says
                for choice in (
                    cluster,
                    _nodes(gpus, hardware),
                    precision,
                    seq_length,
                    batch,
                    attention,
                    rates,
                    note,
                    other,
                    stands,
                )
                if choice.says
            ),
            *not_available,
            *trained.assumed,
        ),
    )


def _versions(question: Question, framework: str) -> tuple[str, SoftwareVersions]:
    """The framework's version: as stated, else the container's, else the newest; and what else is
    known with it. InputError where two of them contradict one another.
    """
    container = container_named(question.container) if question.container else None
    inside = containers()[container].known() if container else {}
    held = inside.get(OWN[framework])
    stated = question.framework_version and numbers_of(question.framework_version)
    version = stated or (held and ".".join(held.split(".")[:2])) or VERSIONS[framework]
    if held and stated and version_of(framework, stated) != version_of(framework, held):
        raise InputError(
            f"framework_version and container must agree, but got {stated} and {container}, which"
            f" has {held}; leave one out"
        )
    torchtitan = named_software.torchtitan_of(question)
    return version, of_run(framework, version, container, torchtitan)


def _switched(
    question: Question,
    software: Software,
    version: str,
    torchtitan: str | None,
    architecture: str,
    precision: str,
    indexed: bool,
) -> tuple[Software, tuple[str, ...]]:
    """The stack with its switches as the version has them, then as the question sets them."""
    number = version_of(software.framework, version)
    fixed = table.parse(question.switch, software.framework)
    fixed = table.with_required(fixed, software.framework)
    for name, value in fixed.items():
        switch = table.BY_FRAMEWORK[software.framework][name]
        if switch.arithmetic_of(value) == "benchmark-only":
            raise InputError(
                f"switch {name} must be {table.shown(switch.first)} in a plan, but got"
                f" {table.shown(value)}, with which a run trains nothing; leave it out (`check`"
                " prices files that have it)"
            )
        spelling = switch.spelled(value, number)
        if spelling is None:
            raise InputError(
                f"switch {name} must be one that {software.framework} {version} has, but got"
                f" {table.shown(value)}, which is there"
                f" {table.versions_with(software.framework, switch, value)}; try another value or"
                " --framework-version"
            )
        if torchtitan and not spelling.in_torchtitan(torchtitan):
            raise InputError(
                f"switch {name} must be one that torchtitan {torchtitan} has, but got"
                f" {table.shown(value)}; try another value or another version of torchtitan"
            )
    narrow = "grad_reduce_dtype"
    if precision in NO_BF16 and fixed.get(narrow) == "bf16":
        raise InputError(
            f"switch {narrow}=bf16 must go with bf16 training, but got {precision}; leave one out"
        )
    free: dict[str, Value] = {} if architecture == "cpu" else dict(FREE)
    if software.framework == "deepspeed" and question.optimizer == "muon":
        free["reduce_scatter"] = False  # Muon needs whole gradients of its matrices
    if software.framework == "megatron" and indexed and architecture != "cpu":
        free["dsa_kernel_backend"] = sparse_kernels(architecture)
        free["rope_fusion"] = False  # no fused rotation beside an indexer
    software, notes = table.available(table.with_switches(software, free), version)
    if precision in NO_BF16 and software.switches.get(narrow) == "bf16":
        software = table.with_switches(software, {narrow: "fp32"})
        notes = (*notes, f"{narrow}: fp32, as {precision} has no gradients in bf16")
    return table.with_switches(software, fixed), notes


def flash_lacks(framework: str, precision: str, gpu: Gpu) -> str:
    """What flash and fused kernels need and a run has not, or "": 16 bits, and Megatron's the
    Ampere generation; torch's own keep no scores in 32 bits and on older GPUs either.
    """
    if framework != "torch" and precision == "fp32":
        return "numbers of 16 bits, and the precision is fp32"
    if framework == "megatron" and 0 < gpu.compute_capability < AMPERE:
        return f"compute capability 8.0, and {gpu.name} has {gpu.compute_capability}"
    return ""


def _attention(
    question: Question, software: Software, hardware: HardwareProfile, precision: str
) -> Chosen:
    """As asked, else the stack's where it runs."""
    missing = flash_lacks(software.framework, precision, hardware.gpu)
    if question.attention is not None:
        attention = _of("attention", question.attention, ATTENTIONS)
        if attention != "unfused" and precision == "fp32" and missing:
            raise InputError(
                f"attention must be unfused, as {attention} attention needs {missing}, but got"
                f" {attention}; leave it out"
            )
        return Chosen(attention, "")
    if missing and software.attention != "unfused":
        return Chosen(
            "unfused", f"attention: unfused, as {software.attention} attention needs {missing}"
        )
    return Chosen(software.attention, "")


def _cluster(question: Question) -> Chosen:
    if question.cluster:
        return Chosen(question.cluster, "")
    local = library.local_cluster()
    if local:
        return Chosen(local, f"cluster: {local}, the GPUs of this machine")
    return Chosen(CLUSTER, f"cluster: {CLUSTER}, as no GPU answers here")


def _nodes(gpus: int, hardware: HardwareProfile) -> Chosen:
    """Counts above a node that do not fill nodes: launch files then use fewer GPUs of each node
    than the cost model thinks.
    """
    node = hardware.node.gpus
    partly = gpus > node and gpus % node
    return Chosen(
        None,
        (
            f"gpus: {gpus:,} do not fill nodes of {node}; ranks are taken to fill them in order"
            if partly
            else ""
        ),
    )


def _requested(question: Question, software: Software) -> Chosen:
    """A schedule that the stack cannot run is planned on request, and marked."""
    if question.schedule is None or question.schedule in software.schedules:
        return Chosen(question.schedule, "")
    return Chosen(
        question.schedule,
        f"schedule: {question.schedule}, which {software.name} does not run; planned on request,"
        " not to be launched",
    )


def _stack(question: Question, architecture: str) -> Software:
    """The stack named, else that of the framework on such a device; the two must agree."""
    framework = _of("framework", question.framework, tuple(named_software.STACKS))
    name = (
        question.stack
        or (ON_PROCESSORS.get(framework or "") if architecture == "cpu" else None)
        or named_software.STACKS[framework or "megatron"]
    )
    if not question.stack and name not in library.stacks():
        raise InputError(
            f"framework must be one that this version has a stack for ({_covered()}), but got"
            f" {framework}"
        )
    if "@" in name:
        named_software.refuse_as("stack", name)
    software = library.stack(name)
    if framework and software.framework != framework:
        raise InputError(
            f"framework and stack must agree, but stack {software.name} is of {software.framework},"
            f" not {framework}; leave one out"
        )
    return software


def _stands_for(question: Question, software: Software, version: str) -> str:
    """What a stack named is, where that is more than a software."""
    if question.stack is None:
        return ""
    if software.reproduces:
        return f"stack {software.name}: reproduces published runs ({software.reproduces})"
    distribution = named(question.stack)
    if distribution is None or not distribution.switches:
        return ""
    return f"stack {software.name}: {distribution.says(version)}"


def _covered() -> str:
    return ", ".join(
        framework for framework, name in named_software.STACKS.items() if name in library.stacks()
    )


def _precision(question: Question, hardware: HardwareProfile) -> Chosen:
    """bf16, or fp16 on GPUs that have no bf16 (V100, T4), or fp32 where fp16 is no faster
    (processors).
    """
    peaks = hardware.gpu.peak_tflops
    if question.precision is None:
        half = "fp16" if peaks["fp16"] > peaks["fp32"] else "fp32"
        older = Chosen(half, f"precision: {half}, as {hardware.gpu.name} has no bf16")
        return Chosen("bf16", "precision: bf16") if "bf16" in peaks else older
    precision = _of("precision", question.precision, PRECISIONS)
    if operand(str(precision)) not in peaks:
        raise InputError(
            f"precision must be one that {hardware.gpu.name} computes ({', '.join(peaks)}), but got"
            f" {precision}"
        )
    return Chosen(precision, "")


def operand(precision: str) -> str:
    """The number format of matrix products under a training precision: the key of a GPU's peaks."""
    return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(precision, precision.split("-")[0])


def _seq_length(question: Question, model: ModelSpec) -> Chosen:
    """4,096 for models up to 4k, else 8,192; a learned position table ends where it ends."""
    if question.seq_length:
        return Chosen(question.seq_length, "")
    length = 4096 if model.max_seq_length <= 4096 else 8192
    if model.position == "learned":
        length = min(length, model.position_rows)
    return Chosen(length, f"seq_length: {length:,} tokens")


def _batch_stated(question: Question) -> bool:
    return bool(question.global_batch_size or question.global_batch_tokens)


def _batch(question: Question, seq_length: int, gpus: int, unit: int) -> Chosen:
    """Sequences a step: as stated, or about 4M tokens in a number that the GPUs (or dp * mbs of one
    layout) can share.
    """
    if question.global_batch_size:
        return Chosen(question.global_batch_size, "")
    wanted = (question.global_batch_tokens or TOKENS) / seq_length
    size = _shared(wanted, gpus) if unit == 1 else max(round(wanted / unit), 1) * unit
    if question.global_batch_tokens:
        near = (
            f"global_batch_size: {size:,}, {size * seq_length:,} tokens, near the"
            f" {question.global_batch_tokens:,} asked for"
        )
        return Chosen(size, "" if size * seq_length == question.global_batch_tokens else near)
    return Chosen(
        size, f"global_batch_size: {size:,} sequences, {size * seq_length / 1e6:.1f}M tokens"
    )


def _shared(wanted: float, gpus: int) -> int:
    """Near `wanted`, a multiple of the odd part of the GPU count and of as many twos as leave it
    within an eighth.
    """
    odd = gpus // (gpus & -gpus)
    if odd > wanted:
        return max(round(wanted), 1)
    twos = max(int(wanted / (4 * odd)).bit_length() - 1, 0)
    unit = odd << twos
    return max(round(wanted / unit), 1) * unit


def _one(question: Question, word: str) -> int | None:
    """The one value of a knob; a range belongs to recommend."""
    bound = bounds(word, getattr(question, word))
    if bound and bound.low != bound.high:
        out = f"ranges are for recommend, --sweep {word}={bound.low},{bound.high} gives a table"
        raise InputError(
            f"{word} must be one number in a layout, but got {bound.low}..{bound.high}; {out}"
        )
    return bound.low if bound else None


def _gpus_and_dp(gpus: int | None, dp: int | None, tp: int, pp: int, cp: int) -> tuple[int, int]:
    rest = tp * pp * cp
    product = f"tp {tp} x pp {pp} x cp {cp}"
    if gpus is None:
        return rest * (dp or 1), dp or 1
    if dp is not None and rest * dp != gpus:
        got = f"{gpus} and {product} x dp {dp} = {rest * dp}"
        raise InputError(f"gpus must be tp x pp x cp x dp, but got {got}; leave out --dp or --gpus")
    if gpus % rest:
        near = max(gpus // rest, 1) * rest
        raise InputError(
            f"gpus must be a multiple of tp x pp x cp, but got {gpus} and {product} = {rest}; try"
            f" {near} GPUs"
        )
    return gpus, gpus // rest


def _micro_batches(size: int, dp: int, mbs: int, m: int | None) -> int:
    share = dp * mbs
    if size % share:
        near = max(size // share, 1) * share
        raise InputError(
            f"global_batch_size must be a multiple of dp x mbs, but got {size} and dp {dp} x mbs"
            f" {mbs} = {share}; try {near}"
        )
    if m is not None and m * share != size:
        raise InputError(
            f"global_batch_size must be dp x mbs x m, but got {size} and {dp} x {mbs} x {m} ="
            f" {share * m}; leave out --m"
        )
    return size // share


def _recompute(question: Question) -> dict[str, int]:
    """Named modules mean selective, a count of layers means full; selective alone is the attention
    core, as in Megatron.
    """
    name = question.recompute or (
        "selective"
        if question.recompute_modules
        else "full"
        if question.recompute_layers
        else "none"
    )
    if question.recompute_modules and name != "selective":
        raise InputError(
            f"recompute_modules must go with recompute selective, but got recompute {name}; leave"
            " one out"
        )
    if question.recompute_layers and name != "full":
        raise InputError(
            f"recompute_layers must go with recompute full, but got recompute {name}; leave one out"
        )
    modules = question.recompute_modules or (("core_attn",) if name == "selective" else ())
    return {"recompute": RECOMPUTE_CODE[name], "recompute_modules": module_mask(list(modules))}


def _of(kind: str, name: str | None, known: tuple[str, ...]) -> Any:
    if name is not None and name not in known:
        if kind == "framework":
            named_software.refuse_as(kind, name)
        raise unknown(kind, name, known)
    return name
