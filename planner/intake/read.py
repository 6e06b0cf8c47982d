"""Any file that someone has: a launch script, a configuration or a log, told apart by its
content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError
from planner.intake.frameworks import not_launches
from planner.intake.plain_file import first_bytes
from planner.intake.reading import Reading

MAX_SCRIPT = 1 << 20
"""Bytes of a script: what people write has 20 kB."""
CONFIGS = (".json", ".yaml", ".yml", ".toml", ".jsonc", ".hjson")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".slrm", ".ksh", ".zsh", ".bat")
LOGS = (".log", ".out", ".err")
JOB = re.compile(r"^(?:apiVersion|run)\s*:", re.MULTILINE)
"""A key that a job of Kubernetes or SkyPilot begins a line with."""
_COMMAND = re.compile(
    r"^\s*(?:[A-Z_]+=\S+\s+)*(?:#!.*sh\b|#SBATCH|export\s+\w+=|torchrun\b|deepspeed\s|"
    r"accelerate\s+launch|srun\b|mpirun\b|python[\d.]*\s|"
    r"megatron\s+\w+|swift\s+\w+|ray\s+job|eval\s|source\s|\w+=\(|\w+=\$|if\s+\[|set\s+-)",
    re.MULTILINE,
)


def read(path: str | Path, sets: Mapping[str, str] | None = None) -> Reading:
    """What a file states. Nothing in it is run, nothing is written, and only files beside it are
    read.

    sets: NAME=VALUE pairs that hold whatever the file says: a script's variables and positional
    parameters, keys of a configuration. Raises InputError with one sentence where the file cannot
    be read, is too large, or is none of these.
    """
    place = Path(path)
    head = first_bytes(place, 1 << 16).decode("utf-8", "replace")
    module = _torchtitan(place, dict(sets or {}))
    if module is not None:
        return module
    not_launches.refuse_python(place, head)
    form = form_of(place, head)
    if form == "log":
        return _log(place)
    if form == "config":
        from planner.intake.frameworks import detect

        if JOB.search(head):
            reading = _job(place, dict(sets or {}))
            if reading is not None:
                return reading
        return detect.read(place, dict(sets or {}))
    return _script(place, dict(sets or {}))


def form_of(place: Path, head: str) -> str:
    """script, config or log: by the ending where it is a usual one, else by the first lines."""
    ending = place.suffix.lower()
    if ending in CONFIGS:
        return "config"
    if ending in SCRIPTS or head.startswith("#!"):
        return "script"
    if ending in LOGS:
        return "log"
    if head.lstrip("\ufeff \t\r\n").startswith(("{", "---")):
        return "config"
    if re.search(
        r"^\s*(?:\[[^\]]+\])?\s*iteration\s+\d+/|RunningAvgSamplesPerSec|-{10,} (?:end of"
        r" )?arguments -{5,}",
        head,
        re.MULTILINE,
    ):
        return "log"
    if _COMMAND.search(head):
        return "script"
    return "config" if re.search(r"^[\w.\"-]+\s*[:=]", head, re.MULTILINE) else "log"


def _log(place: Path) -> Reading:
    from planner.intake.logs import read_log

    reading = read_log.read(place).reading
    if reading is None:
        raise InputError(
            f"{place.name} must be a script or a configuration, or a log that prints its arguments;"
            " but it prints none"
        )
    return reading


def _torchtitan(place: Path, sets: dict[str, str]) -> Reading | None:
    """torchtitan 0.3's configuration, parsed and never run; None for another file. InputError where
    it has several, and --set config=NAME names none of them.
    """
    if place.suffix.lower() != ".py":
        return None
    from planner.intake.documents.scalars import text_of
    from planner.intake.frameworks import detect, torchtitan_python

    text = text_of(place)
    names = torchtitan_python.configurations(text)
    if not names:
        return None
    wanted = sets.pop("config", None) or (names[0] if len(names) == 1 else "")
    if wanted not in names:
        raise InputError(
            f"{place.name} must have one configuration, or --set config=NAME one of"
            f" {', '.join(names[:20])}, but got {wanted[:40] or 'no name'}"
        )
    module = place.resolve().parent.name if place.stem == "config_registry" else place.stem
    stated = torchtitan_python.read(text, str(place), module, wanted)
    if stated is None:
        return None
    leaves, questions = stated
    out = detect.translated(leaves, str(place), (), sets, "torchtitan")
    still = [question for question in questions if question.name not in sets]
    return replace(out, unresolved=(*out.unresolved, *still))


def _job(place: Path, sets: dict[str, str]) -> Reading | None:
    """The script inside a job of Kubernetes or SkyPilot; None for another configuration."""
    from planner.intake.documents.scalars import text_of
    from planner.intake.scripts import in_yaml, read_script

    text = text_of(place)
    inside = in_yaml.job(place, text)
    return read_script.read(place, text, sets, inside) if inside else None


def _script(place: Path, sets: dict[str, str]) -> Reading:
    from planner.intake.scripts import read_script

    size = place.stat().st_size
    if size > MAX_SCRIPT:
        raise InputError(
            f"{place.name} must be a launch script of at most {MAX_SCRIPT:,} bytes, but has"
            f" {size:,}"
        )
    raw = place.read_bytes()
    if b"\0" in raw:
        raise InputError(f"{place.name} must be text, but holds NUL bytes")
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    return read_script.read(place, text, sets)
