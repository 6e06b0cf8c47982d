"""Files that the program writes where the user says: all of them whole, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from planner.errors import InputError


def check(path: str | Path) -> None:
    """InputError unless the file can be written: asked before the work, not after it."""
    path = Path(path)
    folder = path.absolute().parent
    try:
        if path.is_dir():
            raise InputError(f"{path} must be a file to write, but it is a folder")
        if not folder.is_dir():
            raise InputError(f"{path} must lie in a folder that exists, but there is no {folder}")
    except (OSError, ValueError) as fault:
        raise _cannot(path, fault) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path} must be a file to write, but its folder is not writable")


def check_all(paths: Sequence[str], read: Iterable[str] = ()) -> None:
    """InputError unless every file can be written, has its own name and is none of those that are
    read.
    """
    for path in paths:
        check(path)
        if sum(_same(path, other) for other in paths) > 1:
            raise InputError(f"every file must have its own name, but {path} is named twice")
        if any(_same(path, other) for other in read):
            raise InputError(
                f"{path} must be a new file, but it is read too and would be lost; name another"
            )


def write_all(contents: Mapping[str, str | bytes]) -> None:
    """Writes each content beside its place, and moves them there when all are written. A pipe or
    device is written to as it is.
    """
    beside: dict[Path, str] = {}
    path = Path()
    try:
        for path, content in ((Path(name), content) for name, content in contents.items()):
            data = content.encode("utf-8") if isinstance(content, str) else content
            if path.exists() and not path.is_file():
                path.write_bytes(data)
            else:
                _beside(path, data, beside)
        for path, made in beside.items():
            os.replace(made, path)
    except (OSError, ValueError) as fault:
        raise _cannot(path, fault) from None
    finally:
        for made in beside.values():
            Path(made).unlink(missing_ok=True)


def _beside(path: Path, data: bytes, beside: dict[Path, str]) -> None:
    """A file in the same folder; its name is noted before it is filled, so that the caller can
    clear it away.
    """
    handle, beside[path] = tempfile.mkstemp(prefix=".ppplan-", dir=path.absolute().parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(beside[path], 0o666 & ~mask)


def _same(one: str, other: str) -> bool:
    return os.path.abspath(one) == os.path.abspath(other)


def _cannot(path: Path, fault: Exception) -> InputError:
    return InputError(
        f"{path} must be a file to write, but: {getattr(fault, 'strerror', None) or fault}"
    )
