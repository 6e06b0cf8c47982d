"""A proof beside the prediction of its own plan: one rank of it as it ran on one GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from planner.advice import measured, memory
from planner.advice.findings import Checked, Finding, Verdict
from planner.cost.memory import rank_memory
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.files import write_folder
from planner.intake.logs.proof import Proof
from planner.intake.logs.read_log import Log
from planner.intake.read import read
from planner.interpret.interpret import Launch, interpret
from planner.layout import Layout
from planner.plan_files import launch_texts
from planner.schedule_options import schedule_options
from planner.specs import resolve
from planner.specs.question import changed, from_words
from planner.specs.recipe import Recipe
from planner.specs.switches.table import text as switches_text
from planner.specs.words import Question
from planner.units import GIB

FAR_OFF = 0.1
"""Memory that is predicted further off than this is worth a warning."""
WARM_UP = 2
"""Steps that are left out where more ran: they build, compile and make the optimizer's states."""


def question_of(proof: Proof, where: str) -> Question:
    """The plan's question with its layout. InputError where this machine does not know its
    words.
    """
    return from_words(proof.question, where)


def check_proof(
    file: str | Path,
    proof: Proof,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
) -> Checked:
    """The plan of a proof, predicted anew, and the measurement. InputError for a plan that cannot
    be read here, and for another count of GPUs than it ran as.
    """
    question = question_of(proof, str(file))
    if gpus is not None and gpus != question.gpus:
        raise InputError(
            f"--gpus must be the proof's own {question.gpus}, but got {gpus}; leave it out"
        )
    restated = {name: word for name, word in (("cluster", cluster), ("model", model)) if word}
    question = changed(question, restated) if restated else question
    recipe, layout = resolve.recipe_and_layout(question)
    launch = _launch(file, question, recipe, layout)
    predicted = estimate(recipe, layout, exact=True)
    log = Log(
        str(file),
        launch.reading,
        None,
        allocated_bytes=proof.allocated_bytes,
        reserved_bytes=proof.reserved_bytes,
        ranks=1,
        notes=notes(proof),
    )
    judged = as_proved(recipe, predicted, proof)
    verdict: Verdict = "oom" if proof.out_of_memory else memory.verdict(judged)
    figures = measured.measured(launch, log, predicted)
    figures["out_of_memory"] = int(bool(proof.out_of_memory))
    figures["oom_probability"] = float(judged.oom_probability)
    figures["proof"] = {
        "digest": proof.digest,
        "stage": proof.stage,
        "micro_batches": proof.micro_batches,
        "rank_step_s": step_s(proof),
        "gpu": proof.gpu,
        "versions": proof.versions,
    }
    more_bytes = float(judged.memory_bytes) - float(predicted.memory_bytes)
    findings = (
        *_findings(proof, predicted, judged),
        *_other_versions(proof, recipe),
        *memory.findings(launch, judged, max(more_bytes, 0.0)),
    )
    schedules = schedule_options(recipe, layout, predicted)
    return Checked(
        str(file), launch, verdict, findings, predicted, None, figures, schedules=schedules
    )


def as_proved(recipe: Recipe, predicted: Estimate, proof: Proof) -> Estimate:
    """The prediction with the measured peak in place of its own; the context and NCCL's buffers,
    which no proof has, are added as predicted. Where other switches stood in for the plan's, the
    larger of both peaks counts.
    """
    memory = predicted.memory
    if proof.instead and proof.allocated_bytes < memory.allocated_bytes:
        return predicted
    peak = replace(
        memory,
        working_bytes=memory.working_bytes + proof.allocated_bytes - memory.allocated_bytes,
        fragmentation_bytes=max(proof.reserved_bytes - proof.allocated_bytes, 0.0),
    )
    chance = rank_memory.oom_probability(recipe, peak, predicted.memory_limit_bytes)
    return replace(
        predicted,
        memory=peak,
        memory_bytes=peak.device_bytes,
        oom_probability=1.0 if proof.out_of_memory else chance,
    )


def _other_versions(proof: Proof, recipe: Recipe) -> list[Finding]:
    """Packages that ran in another version than the plan counts on."""
    differing = []
    for package, planned in recipe.versions.packages():
        ran = proof.versions.get(package)
        if ran is not None and not same_version(planned, ran):
            differing.append(f"{package} {ran}, not the plan's {planned}")
    if not differing:
        return []
    text = (
        f"it ran with {'; '.join(differing)}, which may need other memory. Run prove.py where"
        " you train, or plan for what is there (--framework-version)"
    )
    return [Finding("warning", "the proof ran other software", text)]


def same_version(planned: str, ran: str) -> bool:
    """Whether what ran is of the version that the plan names, as far as the plan names it:
    0.19 is 0.19.2.
    """
    return f"{ran.partition('+')[0]}.".startswith(f"{planned}.")


def notes(proof: Proof) -> tuple[str, ...]:
    """How the run differed from the plan."""
    sentences = [
        f"one rank of {proof.micro_batches} micro-batches without communication: its times are"
        " not compared"
    ]
    if proof.instead:
        sentences.append(f"in place of the plan's switches ran {switches_text(proof.instead)}")
    return tuple(sentences)


def step_s(proof: Proof) -> float | None:
    """Median of the steps after the first; compute of one rank alone."""
    steps = proof.steps_s[WARM_UP:] or proof.steps_s
    return median(steps) if steps else None


def _launch(file: str | Path, question: Question, recipe: Recipe, layout: Layout) -> Launch:
    """The plan as its own launch files say it."""
    with TemporaryDirectory() as folder:
        texts = launch_texts(recipe, layout, "torchrun", None)
        write_folder(Path(folder), texts)
        reading = read(Path(folder) / "launch.sh")
    launch = interpret(replace(reading, file=str(file)), question.cluster, recipe.gpus)
    return replace(launch, recipe=recipe, layout=layout)


def _findings(proof: Proof, predicted: Estimate, judged: Estimate) -> list[Finding]:
    stage = f"stage {proof.stage}"
    held = f"{proof.allocated_bytes / GIB:.1f} GiB ({proof.reserved_bytes / GIB:.1f} reserved)"
    if proof.out_of_memory:
        text = f"{stage} ran out of memory on one {proof.gpu} at {held}: {proof.out_of_memory}"
        return [Finding("error", "the rank ran out of memory", text)]
    ours = float(predicted.memory.allocated_bytes)
    off = ours / proof.allocated_bytes - 1
    text = (
        f"{stage} held {held} at its peak on one {proof.gpu}, predicted {ours / GIB:.1f}"
        f" ({off:+.1%}). With what no proof has, CUDA's context and NCCL's buffers,"
        f" {judged.memory_bytes / GIB:.1f} GiB of {judged.memory_limit_bytes / GIB:.1f}: out of"
        f" memory with probability {judged.oom_probability:.0%}. It ran as"
        f" {'; '.join(notes(proof))}"
    )
    return [Finding("hint" if abs(off) < FAR_OFF else "warning", "measured", text)]
