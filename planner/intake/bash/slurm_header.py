"""`#SBATCH` lines and the variables that Slurm sets from them."""

from __future__ import annotations

import re

from planner.intake.bash.state import State, assign
from planner.intake.bash.traced_text import Piece, Source, Text, computed, cut, plain, source

_LINE = re.compile(r"^#SBATCH[ \t]+(?P<options>[^\n]*)", re.MULTILINE)
_FIRST = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
"""The first command: Slurm looks no further."""
SHORT = {
    "-N": "--nodes",
    "-n": "--ntasks",
    "-G": "--gpus",
    "-C": "--constraint",
    "-p": "--partition",
    "-c": "--cpus-per-task",
}
NAMED = (
    "--nodes",
    "--ntasks",
    "--ntasks-per-node",
    "--gpus-per-node",
    "--gres",
    "--gpus",
    "--gpus-per-task",
    "--constraint",
    "--partition",
    "--export",
)
_GPUS = {
    "--gpus-per-node": re.compile(r"^(?:([A-Za-z][\w.-]*):)?(\d+)\Z"),
    "--gres": re.compile(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?(?:\(|,|$)"),
}
"""Kind and number."""


def header(state: State, src: Source) -> None:
    """Takes the script's options as those of the command that submits it, and sets Slurm's
    variables.
    """
    words: list[Text] = []
    first = _FIRST.search(src.text)
    end = first.start() if first else len(src.text)
    for line in _LINE.finditer(src.text, 0, end):
        options = line["options"].split(" #")[0].split("\t#")[0]
        begin = line.start("options")
        for match in re.finditer(r"\S+", options):
            words.append(cut(src, begin + match.start(), begin + match.end()))
    if words:
        state.outer = (*state.outer, [(Piece("sbatch", via="#SBATCH"),), *words])
    for name, value in variables(facts(state.outer)).items():
        if name not in state.variables:
            pieces = [
                Piece(part.text, part.file, part.start, name, "environment") for part in value
            ]
            assign(state, name, tuple(pieces))


def facts(outer: tuple[list[Text], ...]) -> dict[str, Text]:
    """Options of sbatch and srun by their long name, the innermost last."""
    out: dict[str, Text] = {}
    for words in outer:
        if plain(words[0]).rpartition("/")[2] in ("sbatch", "srun", "salloc"):
            out |= options(words[1:])
    return out


def options(words: list[Text]) -> dict[str, Text]:
    """`--name value`, `--name=value`, `-N4` of the options that matter."""
    out: dict[str, Text] = {}
    names = [plain(word) for word in words]
    for at, name in enumerate(names):
        option, equals, _ = name.partition("=")
        short = SHORT.get(name[:2])
        if short and len(name) > 2:
            out[short] = _rest(words[at], 2)
        elif option in NAMED and equals:
            out[option] = _rest(words[at], len(option) + 1)
        elif (short or name in NAMED) and at + 1 < len(words):
            out[short or name] = words[at + 1]
    return out


def _rest(word: Text, start: int) -> Text:
    return cut(source(word), start, len(plain(word)))


def count(text: Text | None) -> int | None:
    """A whole number that is stated, of nodes also the larger of a range."""
    match = re.fullmatch(r"\s*(?:\d+-)?(\d{1,7})\s*", plain(text or ()))
    return int(match[1]) if match else None


def gpus_per_node(job: dict[str, Text]) -> tuple[Text, int | None, str] | None:
    """(as stated, number, kind) of --gpus-per-node or --gres=gpu:kind:n.

    job: options by their long name, as `facts` gives them.
    """
    for name, pattern in _GPUS.items():
        if name not in job:
            continue
        text = plain(job[name])
        gpu = pattern.search(text)
        if gpu and gpu[2]:
            return cut(source(job[name]), *gpu.span(2)), int(gpu[2]), gpu[1] or ""
        if gpu:
            return job[name], 1, gpu[1] or ""
        if "gpu" in text or name == "--gpus-per-node":
            return job[name], None, ""
    return None


def variables(job: dict[str, Text]) -> dict[str, Text]:
    """What Slurm sets for the job."""
    out: dict[str, Text] = {}
    nodes = count(job.get("--nodes"))
    tasks = count(job.get("--ntasks"))
    each = count(job.get("--ntasks-per-node"))
    gpus = gpus_per_node(job)
    if nodes:
        out |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"), job["--nodes"])
    if each:
        out |= dict.fromkeys(
            ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), job["--ntasks-per-node"]
        )
    if gpus and gpus[1]:
        out |= dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), gpus[0])
    if tasks:
        out |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), job["--ntasks"])
    elif nodes and each:
        out |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), computed(str(nodes * each)))
    return out
