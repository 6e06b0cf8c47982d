"""Files that the program writes: all of a call, each of them complete, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from planner.errors import InputError

SCRIPTS = (".sh", ".sbatch")
"""Suffixes of files that become executable."""


def folder(name: str | Path) -> Path:
    """The folder that a user names: `~` is home, and an empty text is no folder. Raises
    InputError.
    """
    if not str(name).strip():
        raise InputError(
            "out must be a folder to write into, but got nothing; `.` is the one you are in"
        )
    try:
        path = Path(name).expanduser()
        os.lstat(path)
        return path
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as fault:
        raise _cannot_enter(Path(name), fault) from None
    except RuntimeError:
        raise InputError(
            f"out must be a folder to write into, but {str(name)[:80]} names no user's home"
        ) from None


def check_folder(folder: Path) -> None:
    """Raises InputError unless files can be written into `folder`, which may not exist yet. Called
    before the work, so that the work is not lost.
    """
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except (OSError, ValueError) as fault:
        raise _cannot_enter(folder, fault) from None
    if not nearest.is_dir():
        raise InputError(f"{folder} must be a folder to write into, but {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{folder} must be a folder to write into, but {nearest} is not writable")


def check_files(paths: Sequence[str], read: Iterable[str] = ()) -> None:
    """Raises InputError unless every file can be written, has its own name and is none of those
    that are read; its folder may not exist yet. Called before the work, so that the work is not
    lost.
    """
    absolute = [os.path.abspath(path) for path in paths]
    inputs = {os.path.abspath(path) for path in read}
    for path in paths:
        _check_file(Path(path))
        if absolute.count(os.path.abspath(path)) > 1:
            raise InputError(f"every file must have its own name, but {path} is named twice")
        if os.path.abspath(path) in inputs:
            raise InputError(
                f"{path} must be a new file, but it is read too and would be lost; name another"
            )


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise InputError(f"{path} must be a file to write, but it is a folder")
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as fault:
        raise _cannot_write(path, fault) from None
    check_folder(path.absolute().parent)


def write_folder(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Writes each text under its name into `folder`, which is made if need be, and returns the
    paths. On a fault nothing of this call stays behind. Raises InputError.
    """
    check_folder(folder)
    write_files({str(folder / name): text for name, text in texts.items()})
    return tuple(str(folder / name) for name in texts)


def write_files(contents: Mapping[str, str | bytes]) -> None:
    """Writes each content under its path, in folders that are made if need be: all or none. Every
    content goes into a temporary file of its folder first; a pipe or device is written to as it is.
    Raises InputError.
    """
    umask = os.umask(0)
    os.umask(umask)
    temporary: dict[Path, str] = {}
    made: list[Path] = []
    path = Path()
    try:
        for name, content in contents.items():
            path = Path(name)
            folder = path.absolute().parent
            made[:0] = [parent for parent in (folder, *folder.parents) if not parent.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            data = content.encode("utf-8") if isinstance(content, str) else content
            if path.exists() and not path.is_file():
                path.write_bytes(data)
                continue
            # Noted before it is filled, so that a fault in the writing clears it away.
            handle, temporary[path] = tempfile.mkstemp(
                prefix=".ppplan-", dir=path.absolute().parent
            )
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mode = 0o777 if path.suffix in SCRIPTS else 0o666
            os.chmod(temporary[path], mode & ~umask)
        for path, written in temporary.items():
            os.replace(written, path)
        made.clear()
    except (OSError, ValueError) as fault:
        raise _cannot_write(path, fault) from None
    finally:
        for written in temporary.values():
            Path(written).unlink(missing_ok=True)
        for new in made:
            with suppress(OSError):
                new.rmdir()


def _cannot_enter(folder: Path, fault: Exception) -> InputError:
    return InputError(f"{folder} must be a folder to write into, but: {_reason(fault)}")


def _cannot_write(path: Path, fault: Exception) -> InputError:
    return InputError(f"{path} must be a file to write, but: {_reason(fault)}")


def _reason(fault: Exception) -> str:
    return str(getattr(fault, "strerror", None) or fault)
