"""Files that the program writes: whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from planner.errors import InputError


def folder(stated: str | Path) -> Path:
    """The folder that someone states: `~` is home, and nothing is no folder. InputError."""
    if not str(stated).strip():
        raise InputError(
            "out must be a folder to write into, but got nothing; `.` is the one you are in"
        )
    try:
        out = Path(stated).expanduser()
        os.lstat(out)
        return out
    except FileNotFoundError:
        return out
    except (OSError, ValueError) as fault:
        raise _cannot(Path(stated), fault) from None
    except RuntimeError:
        raise InputError(
            f"out must be a folder to write into, but {str(stated)[:80]} names no user's home"
        ) from None


def check_folder(folder: Path) -> None:
    """InputError unless files can be written into `folder`, which may not exist yet: asked before
    the work, not after it.
    """
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except (OSError, ValueError) as fault:
        raise _cannot(folder, fault) from None
    if not there.is_dir():
        raise InputError(f"{folder} must be a folder to write into, but {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{folder} must be a folder to write into, but {there} is not writable")


def write_all(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Writes every text under its name and returns the paths; scripts (.sh, .sbatch) become
    executable.

    All are written to a temporary folder first: on any fault nothing of this call stays behind.
    """
    check_folder(folder)
    new = not folder.exists()
    beside: str | None = None
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.mkdtemp(
            prefix=".ppplan-", dir=folder.absolute().parent if new else folder
        )
        for name, text in texts.items():
            _write(Path(beside) / name, text)
        if new:
            os.chmod(beside, 0o777 & ~_umask())
            os.replace(beside, folder)
        else:
            for name in texts:
                os.replace(Path(beside) / name, folder / name)
    except OSError as fault:
        raise _cannot(folder, fault) from None
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
    return tuple(str(folder / name) for name in texts)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    if path.suffix in (".sh", ".sbatch"):
        path.chmod(path.stat().st_mode | (0o111 & ~_umask()))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot(folder: Path, fault: Exception) -> InputError:
    return InputError(
        f"{folder} must be a folder to write into, but: {getattr(fault, 'strerror', None) or fault}"
    )
