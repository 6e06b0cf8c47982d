"""Check: a launch that somebody already has. What is illegal, what does not fit, what is slow, what
is not as it seems; what to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner import switch_gains
from planner.advice import (
    fixes,
    gains,
    legality,
    measured,
    memory,
    not_in_layout,
    not_priced,
    oom_line,
    parser_errors,
    proved,
    refused_values,
    traps,
    traps_deepspeed,
    traps_torch,
)
from planner.advice.findings import Best, Checked, Finding, Verdict
from planner.advice.flag_names import flags
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.intake.logs import proof
from planner.intake.logs.read_log import Log
from planner.intake.reading import Reading, Value
from planner.interpret.interpret import Launch, computes, interpret, reinterpret
from planner.rules.table import breaches
from planner.schedule_options import ScheduleOption, schedule_options

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

    overrides = pairs(sets)
    found = proof.proofs(file)
    if found:
        if overrides or oom or fix is not None:
            raise InputError(
                f"{file} holds a proof, which says all of its plan; leave --set, --oom and --fix"
                " out"
            )
        return proved.check_proof(file, found[-1], cluster, gpus, model)
    logged = measured.log_of(file)
    reading = logged.reading if logged else read(file, overrides)
    answer = check_reading(
        reading,
        cluster,
        gpus,
        model,
        overrides,
        oom,
        logged.log if logged else measured.log_beside(file),
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
        name = name.strip().removeprefix("--")
        if name in out:
            raise InputError(f"--set must state {name[:60]} once, but got it twice; leave one out")
        out[name] = value.strip()
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
    guessed = log is not None and measured.guessed(launch, log)
    findings, estimated, best, verdict = _judged(launch, log if guessed else None)
    figures = None
    if log is not None:
        findings += measured.findings(log, estimated)
        figures = measured.measured(launch, log, estimated)
        if log.ooms:
            oom = oom or log.ooms[0].text
            verdict = verdict if verdict == "invalid" else "oom"
    ranked = sorted(_without_repeats(findings), key=lambda finding: ORDER.index(finding.severity))
    matched = oom_line.matches(launch, oom, estimated) if oom else None
    return Checked(
        reading.file,
        launch,
        verdict,
        tuple(ranked),
        estimated,
        best,
        figures,
        matched,
        switches=_switches(launch, estimated, verdict),
        schedules=_schedules(launch, estimated, verdict),
        guessed=guessed,
    )


def _switches(launch: Launch, estimated: Estimate | None, verdict: Verdict) -> str:
    """What is on; what it saves is said of a launch that runs."""
    if estimated is None or verdict == "invalid":
        return switch_gains.acting(launch.recipe, launch.layout)
    return switch_gains.turned_on(launch.recipe, launch.layout, float(estimated.step_s))


def _schedules(
    launch: Launch, estimated: Estimate | None, verdict: Verdict
) -> tuple[ScheduleOption, ...]:
    """What each schedule would give, of a launch that runs."""
    if estimated is None or verdict == "invalid":
        return ()
    return schedule_options(launch.recipe, launch.layout, estimated)


Judged = tuple[list[Finding], Estimate | None, Best | None, Verdict]


def _judged(launch: Launch, log: Log | None = None) -> Judged:
    """All findings of a launch, its estimate, the best plan and the verdict. `log` is one whose
    layout nobody states: it ran, and only that is known.
    """
    if log is not None:
        return [measured.unknown_layout(launch, log)], None, None, "fits"
    illegal = legality.findings(launch)
    faults = [
        *refused_values.findings(launch),
        *parser_errors.findings(launch),
        *not_in_layout.findings(launch),
        *traps_deepspeed.findings(launch),
        *traps_torch.findings(launch),
        *illegal,
    ]
    if launch.reading.undecided:
        faults = [_undecided(launch, fault) for fault in faults]
    if launch.recipe.framework == "megatron" or launch.reading.kind == "megatron-deepspeed":
        faults += traps.findings(launch)
    broken = _has_error(faults)
    findings = [*faults, *not_priced.findings(launch), *_unknown(launch)]
    estimated = _estimate(launch, _has_error(illegal))
    verdict: Verdict = "fits"
    if broken:
        verdict = "invalid"
    elif estimated is not None:
        verdict = memory.verdict(estimated)
        findings += [*memory.findings(launch, estimated), *gains.findings(launch, estimated)]
    best = gains.best(launch, estimated) if launch.sized and computes(launch.recipe) else None
    findings += gains.best_finding(launch, best, None if broken else estimated)
    return findings, estimated, best, verdict


def _has_error(findings: list[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _undecided(launch: Launch, fault: Finding) -> Finding:
    """Where branches of a script hang on what nobody sets, what is missing may be in one of them:
    that is no error yet.
    """
    if fault.severity != "error" or not _mended_by_stating(launch, fault):
        return fault
    message = f"{fault.message}. It may be in a branch that hangs on what nobody sets"
    return replace(fault, severity="warning", message=message)


def _mended_by_stating(launch: Launch, finding: Finding) -> bool:
    """Whether stating what the file does not state would mend it."""
    for way in finding.ways:
        for name, value in way.values.items():
            if value not in (None, False) and name not in launch.reading.values:
                return True
    return False


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


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """Two findings of the same rule say it once: the first speaks, in the place of the last."""
    by_rule: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.rule, finding.message if finding.rule == "faster" else "")
        by_rule[key] = by_rule.pop(key, finding)
    return list(by_rule.values())


def _unknown(launch: Launch) -> list[Finding]:
    """What kept memory and time from being predicted."""
    recipe = launch.recipe
    if not launch.sized:
        whys = [question.why for question in launch.unresolved if question.name == "model"]
        why = whys[0] if whys else "the model is not known"
        message = f"{why}. Only what the file itself states was checked"
    elif not computes(recipe):
        gpu = recipe.hardware.gpu
        message = f"{gpu.name} computes {', '.join(gpu.peak_tflops)}, not {recipe.precision}"
    else:
        return []
    return [Finding("warning", "memory and time not known", message)]


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
    values = changes_to_fit(answer)
    if not values:
        why = "no change near by makes it so"
        if answer.verdict in ("fits", "marginal"):
            why = "it is legal and fits"
        raise InputError(f"--fix must have something to change, but {why}; leave it out")
    reading = answer.launch.reading
    written = fixes.rewritten(answer.launch, values)
    target = Path(out)
    if target.is_dir() or target.resolve() == Path(reading.file).resolve():
        raise InputError(f"--fix must name another file than the one that is read, but got {out}")
    files = write_folder(target.parent, _named(reading.file, target, written.texts))
    diff = written.diff
    if written.left:
        diff += f"\nnot in the file's text, to be changed by hand: {', '.join(written.left)}"
    return replace(answer, fixed=files, diff=diff, edits=flags(reading.kind, values))


def changes_to_fit(answer: Checked) -> dict[str, Any]:
    """Changes that make the launch legal and let it fit: what is legal may still not fit, so the
    changed one is judged again.
    """
    launch, findings = answer.launch, list(answer.findings)
    out: dict[str, Any] = {}
    for _ in range(ROUNDS):
        broken = tuple(breach.rule for breach in breaches(launch.recipe, launch.layout))
        needed = fixes.needed(findings, legality.way_out_of_all(launch), broken)
        if needed.keys() <= out.keys():
            break
        for name, value in needed.items():
            out.setdefault(name, value)
        launch = changed(answer.launch, out)
        findings = _judged(launch)[0]
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
