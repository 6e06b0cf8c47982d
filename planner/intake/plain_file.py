"""Whether a path is a file that can be read without waiting."""

from __future__ import annotations

import stat
from pathlib import Path

from planner.errors import InputError

SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def plain_file(path: str | Path) -> Path:
    """The path of a file that can be read without waiting. InputError for a folder, a pipe, a
    device, or nothing.
    """
    place, shown = Path(path), str(path)[:200]
    try:
        mode = place.stat().st_mode
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise InputError(f"{shown} must be a file that can be read, but got: {why}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{shown} must be one file, but is a folder{_inside(place)}")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{shown} must be a plain file, but is {SPECIAL.get(stat.S_IFMT(mode), 'none')}; save"
            " its text to a file first"
        )
    return place


def _inside(folder: Path) -> str:
    """Files of the folder that may be what is meant."""
    try:
        names = [
            one.name
            for _, one in zip(range(MAX_LISTED), folder.iterdir(), strict=False)
            if one.suffix in LAUNCHES and one.is_file()
        ]
    except OSError:
        return "; name the script, configuration or log in it"
    ranked = sorted(names, key=lambda name: (LAUNCHES.index(Path(name).suffix), name))[:MAX_NAMED]
    return (
        f"; name one file in it, such as {', '.join(ranked)}"
        if ranked
        else " in which no script, configuration or log lies"
    )


LAUNCHES = (".sh", ".slurm", ".sbatch", ".yaml", ".yml", ".toml", ".json", ".log")


MAX_NAMED = 3


MAX_LISTED = 2000
