"""`#SBATCH` lines and the variables that Slurm sets from them."""

from __future__ import annotations

import re

from planner.intake.bash.state import State, assign
from planner.intake.bash.traced_text import Piece, Source, Text, computed, cut, plain, shown, source

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


def header(state: State, src: Source) -> None:
    """Takes the script's options as those of the command that submits it, and sets Slurm's
    variables.
    """
    words: list[Text] = []
    first = _FIRST.search(src.text)
    for found in _LINE.finditer(src.text, 0, first.start() if first else len(src.text)):
        options = found["options"].split(" #")[0].split("\t#")[0]
        begin = found.start("options")
        words += [
            cut(src, begin + match.start(), begin + match.end())
            for match in re.finditer(r"\S+", options)
        ]
    if words:
        state.outer = (*state.outer, [(Piece("sbatch", via="#SBATCH"),), *words])
    for name, value in variables(facts(state.outer)).items():
        if name not in state.variables:
            assign(
                state,
                name,
                tuple(Piece(one.text, one.file, one.start, name, "environment") for one in value),
            )


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
        stated, equals, _ = name.partition("=")
        short = SHORT.get(name[:2]) if not name.startswith("--") else None
        if short and len(name) > 2:
            out[short] = _rest(words[at], 2)
        elif stated in NAMED and equals:
            out[stated] = _rest(words[at], len(stated) + 1)
        elif (short or name in NAMED) and at + 1 < len(words):
            out[short or name] = words[at + 1]
    return out


def _rest(word: Text, start: int) -> Text:
    return cut(source(word), start, len(plain(word)))


def count(text: Text | None) -> int | None:
    """A whole number that is stated, of nodes also the larger of a range."""
    match = re.fullmatch(r"\s*(?:\d+-)?(\d{1,7})\s*", plain(text)) if text else None
    return int(match[1]) if match else None


def gpus_per_node(found: dict[str, Text]) -> tuple[Text, int | None, str] | None:
    """(as stated, number, kind) of --gpus-per-node or --gres=gpu:kind:n."""
    for name in ("--gpus-per-node", "--gres"):
        if name not in found:
            continue
        text = plain(found[name])
        gpu = (
            re.search(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?(?:\(|,|$)", text)
            if name == "--gres"
            else re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?(\d+)", text)
        )
        if gpu:
            return (
                _number(found[name], gpu),
                int(gpu[2]) if gpu[2] else (1 if name == "--gres" else None),
                gpu[1] or "",
            )
        if "gpu" in text or name == "--gpus-per-node":
            return found[name], None, ""
    return None


def _number(text: Text, gpu: re.Match[str]) -> Text:
    return cut(source(text), *gpu.span(2)) if gpu[2] else text


def variables(found: dict[str, Text]) -> dict[str, Text]:
    """What Slurm sets for the job."""
    out: dict[str, Text] = {}
    if count(found.get("--nodes")):
        out |= dict.fromkeys(
            ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"), found["--nodes"]
        )
    if count(found.get("--ntasks-per-node")):
        out |= dict.fromkeys(
            ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), found["--ntasks-per-node"]
        )
    gpus = gpus_per_node(found)
    if gpus and gpus[1]:
        out |= dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), gpus[0])
    tasks, nodes, each = (
        count(found.get(name)) for name in ("--ntasks", "--nodes", "--ntasks-per-node")
    )
    if tasks:
        out |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), found["--ntasks"])
    elif nodes and each:
        out |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), computed(str(nodes * each)))
    return out


def told(text: Text) -> str:
    return shown(text)[:60]
