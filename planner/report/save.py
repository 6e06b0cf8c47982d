"""One file that the program writes: whole or not at all."""

from __future__ import annotations

import os
import tempfile
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


def write(path: str | Path, content: str | bytes) -> str:
    """Writes beside the place and moves there; returns the path. A pipe or device is written to as it is."""
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return str(path)
        _replace(path, data)
    except (OSError, ValueError) as fault:
        raise _cannot(path, fault) from None
    return str(path)


def _replace(path: Path, data: bytes) -> None:
    handle, beside = tempfile.mkstemp(prefix=".ppplan-", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _cannot(path: Path, fault: Exception) -> InputError:
    return InputError(f"{path} must be a file to write, but: {getattr(fault, 'strerror', None) or fault}")
