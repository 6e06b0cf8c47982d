"""Check: a launch that somebody already has. What is illegal, what does not fit, what is slow, what
is not as it seems; what to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.advice import (
    fixes,
    gains,
    legality,
    measured,
    memory,
    not_in_layout,
    oom_line,
    parser_errors,
    traps,
    traps_deepspeed,
    traps_torch,
)
from planner.advice.findings import Best, Checked, Finding, Verdict
from planner.advice.flag_names import flags
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.intake.logs.read_log import Log
from planner.intake.reading import Reading, Value
from planner.interpret.interpret import Launch, computes, interpret, reinterpret
from planner.rules.table import breaches

ROUNDS = 3
"""Times that a changed launch is asked again."""
ORDER = ("error", "warning", "hint")


def check_file(
    file: str | Path,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
    sets: Sequence[str] = (),
    oom: str | None = None,
    fix: str | Path | None = None,
) -> Checked:
    """Reads a file and answers; writes it again where `fix` names a path. Raises InputError for
    what cannot be read or is not known.
    """
    from planner.intake.read import read

    stated = pairs(sets)
    told = measured.log_of(file)
    reading = told.reading if told else read(file, stated)
    answer = check_reading(
        reading, cluster, gpus, model, stated, oom, told.log if told else measured.beside(file)
    )
    answer = replace(answer, file=str(file))
    return answer if fix is None else fixed(answer, fix)


def pairs(sets: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as names and values; InputError for anything else."""
    out: dict[str, str] = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set must read NAME=VALUE, such as NNODES=4, but got {text[:80]!r}")
        out[name.strip().removeprefix("--")] = value.strip()
    return out


def check_reading(
    reading: Reading,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
    sets: Mapping[str, str] | None = None,
    oom: str | None = None,
    log: Log | None = None,
) -> Checked:
    """The answer for one reading. Raises InputError for options that name nothing known, never for
    what the file says.
    """
    launch = interpret(reading, cluster, gpus, model, sets)
    blind = log is not None and measured.guessed(launch, log)
    told, said, best, verdict = _blind(launch, log) if log is not None and blind else _told(launch)
    if log is not None:
        told += measured.findings(log, said)
        oom = oom or (log.ooms[0].text if log.ooms else None)
        verdict = "oom" if log.ooms and verdict != "invalid" else verdict
    ranked = sorted(_once(told), key=lambda one: ORDER.index(one.severity))
    matched = oom_line.matches(launch, oom, said) if oom else None
    figures = measured.measured(launch, log, said) if log is not None else None
    return Checked(
        reading.file, launch, verdict, tuple(ranked), said, best, figures, matched, guessed=blind
    )


Told = tuple[list[Finding], Estimate | None, Best | None, Verdict]


def _blind(launch: Launch, log: Log) -> Told:
    """Of a log whose layout nobody states: it ran, and only that is known."""
    return [measured.unknown(launch, log)], None, None, "fits"


def _told(launch: Launch) -> Told:
    """All findings of a launch, its estimate, the best plan and the verdict."""
    illegal = legality.findings(launch)
    faults = _supposed(
        launch,
        [
            *parser_errors.findings(launch),
            *not_in_layout.findings(launch),
            *traps_deepspeed.findings(launch),
            *traps_torch.findings(launch),
            *illegal,
        ],
    )
    silent = (
        traps.findings(launch)
        if launch.recipe.framework == "megatron" or launch.reading.kind == "megatron-deepspeed"
        else []
    )
    broken = any(finding.severity == "error" for finding in (*faults, *silent))
    said = _estimate(launch, any(finding.severity == "error" for finding in illegal))
    told = [*faults, *silent, *_unknown(launch)]
    if said is not None and not broken:
        told += [*memory.findings(launch, said), *gains.findings(launch, said)]
    best = gains.best(launch, said) if launch.sized and computes(launch.recipe) else None
    told += gains.best_finding(launch, best, None if broken else said)
    return (
        told,
        said,
        best,
        "invalid" if broken else memory.verdict(said) if said is not None else "fits",
    )


def _supposed(launch: Launch, faults: list[Finding]) -> list[Finding]:
    """Where branches of a script hang on what nobody sets, what is missing may be in one of them:
    that is no error yet.
    """
    if not launch.reading.undecided:
        return faults
    return [
        (
            replace(
                fault,
                severity="warning",
                message=f"{fault.message}. It may be in a branch that hangs on what nobody sets",
            )
            if fault.severity == "error" and _missing(launch, fault)
            else fault
        )
        for fault in faults
    ]


def _missing(launch: Launch, finding: Finding) -> bool:
    """Whether stating what the file does not state would mend it."""
    return any(
        value not in (None, False) and name not in launch.reading.values
        for way in finding.ways
        for name, value in way.values.items()
    )


def _estimate(launch: Launch, illegal: bool) -> Estimate | None:
    """What the cost model says; of an illegal layout the closed form, where there is one, as a hint
    of its size.
    """
    if not launch.sized or not computes(launch.recipe):
        return None
    try:
        return estimate(launch.recipe, launch.layout, exact=not illegal)
    except (InputError, ArithmeticError, ValueError, IndexError):
        return None


def _once(findings: list[Finding]) -> list[Finding]:
    """Two ways to the same rule say it once."""
    return list(
        {
            (one.rule, one.message if one.rule == "faster" else ""): one
            for one in reversed(findings)
        }.values()
    )[::-1]


def _unknown(launch: Launch) -> list[Finding]:
    """What kept memory and time from being told."""
    if not launch.sized:
        why = next(
            (question.why for question in launch.unresolved if question.name == "model"),
            "the model is not known",
        )
        return [
            Finding(
                "warning",
                "memory and time not known",
                f"{why}. Only what the file itself states was checked",
            )
        ]
    if not computes(launch.recipe):
        gpu = launch.recipe.hardware.gpu
        return [
            Finding(
                "warning",
                "memory and time not known",
                f"{gpu.name} computes {', '.join(gpu.peak_tflops)}, not {launch.recipe.precision}",
            )
        ]
    return []


def fixed(answer: Checked, out: str | Path) -> Checked:
    """The answer with its file written again at `out`, changed as little as makes it legal and
    fitting.

    Raises InputError when nothing needs changing, or no change is known.
    """
    from planner.files import write_folder

    if answer.guessed:
        raise InputError(
            f"--fix must have a script or a configuration to write again, but {answer.file} is a"
            " log without arguments"
        )
    values = settled(answer)
    if not values:
        why = (
            "it is legal and fits"
            if answer.verdict in ("fits", "marginal")
            else "no change near by makes it so"
        )
        raise InputError(f"--fix must have something to change, but {why}; leave it out")
    launch = answer.launch
    written = fixes.rewritten(launch, values)
    target = Path(out)
    if target.is_dir() or target.resolve() == Path(launch.reading.file).resolve():
        raise InputError(f"--fix must name another file than the one that is read, but got {out}")
    files = write_folder(target.parent, _named(launch.reading.file, target, written.texts))
    left = (
        f"\nnot in the file's text, to be changed by hand: {', '.join(written.left)}"
        if written.left
        else ""
    )
    return replace(
        answer, fixed=files, diff=written.diff + left, edits=flags(launch.reading.kind, values)
    )


def settled(answer: Checked) -> dict[str, Any]:
    """Changes that make the launch legal and let it fit: what is legal may still not fit, so the
    changed one is asked again.
    """
    launch, findings = answer.launch, answer.findings
    out: dict[str, Any] = {}
    for _ in range(ROUNDS):
        broken = tuple(breach.rule for breach in breaches(launch.recipe, launch.layout))
        more = {
            name: value
            for name, value in fixes.needed(list(findings), legality.joint(launch), broken).items()
            if name not in out
        }
        if not more:
            break
        out |= more
        launch = changed(answer.launch, out)
        findings = tuple(_told(launch)[0])
    return out


def changed(launch: Launch, values: Mapping[str, Any]) -> Launch:
    """The launch with other values: None takes one away."""
    kept = {
        name: value
        for name, value in launch.values.items()
        if values.get(name, value) is not None and value.origin != "default"
    }
    new = {
        name: Value(value, "option", "--fix") for name, value in values.items() if value is not None
    }
    return reinterpret(
        launch, replace(launch.reading, values={**kept, **new}), values.get("launch.gpus")
    )


def _named(file: str, target: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Texts by the names that they get beside the target; a file that is there already keeps its
    own, and the script names the new one.
    """
    main = texts[file]
    out: dict[str, str] = {}
    for path, text in texts.items():
        name = Path(path).name
        if path == file:
            continue
        new = f"{target.stem}-{name}" if (target.parent / name).exists() else name
        main = main.replace(name, new)
        out[new] = text
    return {target.name: main, **out}
