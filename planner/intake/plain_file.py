"""Whether a path is a file that can be read without waiting."""

from __future__ import annotations

import stat
from itertools import islice
from pathlib import Path

from planner.errors import InputError

SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def first_bytes(path: str | Path, count: int) -> bytes:
    """The first bytes of a plain file. InputError where it cannot be read."""
    try:
        with plain_file(path).open("rb") as stream:
            return stream.read(count)
    except (OSError, ValueError) as fault:
        raise _unreadable(path, fault) from None


def plain_file(path: str | Path) -> Path:
    """The path of a file that can be read without waiting. InputError for a folder, a pipe, a
    device, or nothing.
    """
    place, shown = Path(path), str(path)[:200]
    try:
        mode = place.stat().st_mode
    except (OSError, ValueError) as fault:
        raise _unreadable(path, fault) from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{shown} must be one file, but is a folder{_inside(place)}")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{shown} must be a plain file, but is {SPECIAL.get(stat.S_IFMT(mode), 'none')}; save"
            " its text to a file first"
        )
    return place


def _unreadable(path: str | Path, fault: Exception) -> InputError:
    why = getattr(fault, "strerror", None) or fault
    return InputError(f"{str(path)[:200]} must be a file that can be read, but got: {why}")


def _inside(folder: Path) -> str:
    """Files of the folder that may be what is meant."""
    try:
        ranked = sorted(
            (LAUNCHES.index(path.suffix), path.name)
            for path in islice(folder.iterdir(), MAX_LISTED)
            if path.suffix in LAUNCHES and path.is_file()
        )
    except OSError:
        return "; name the script, configuration or log in it"
    if not ranked:
        return " in which no script, configuration or log lies"
    names = [name for _, name in ranked[:MAX_NAMED]]
    return f"; name one file in it, such as {', '.join(names)}"


LAUNCHES = (".sh", ".slurm", ".sbatch", ".yaml", ".yml", ".toml", ".json", ".log")
MAX_NAMED = 3
MAX_LISTED = 2000
