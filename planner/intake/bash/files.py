"""Files beside a script: the only ones that are read, and never more than a launch needs."""

from __future__ import annotations

from pathlib import Path

from planner.intake.bash.state import MAX_TEXT, State, note
from planner.intake.bash.traced_text import UNKNOWN, Piece, Text, plain

MAX_FILES = 100


def read_beside(state: State, text: Text) -> tuple[str, Text] | None:
    """Name and text of a file that the script names, if it lies in the script's folder or below; a
    file that it writes itself first.
    """
    name = plain(text).strip()
    written = state.work.written.get(name) or state.work.written.get(name.removeprefix("./"))
    if written:
        return name, written
    path = _located(state, name)
    if path is None:
        return None
    shown = _shown_path(state, path)
    if shown not in state.work.texts and len(state.work.texts) >= MAX_FILES:
        return None
    try:
        if path.stat().st_size > MAX_TEXT:
            note(state, f"{shown} is larger than {MAX_TEXT:,} bytes and is not read")
            return None
        content = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None
    state.work.texts[shown] = content
    return shown, (Piece(content, shown, 0),)


def _shown_path(state: State, path: Path) -> str:
    """A path as the user would write it: beside the script as that was named."""
    try:
        return str(state.path.parent / path.relative_to(state.path.parent.resolve()))
    except (OSError, ValueError):
        return str(path)


def _located(state: State, name: str) -> Path | None:
    """The file of a name, relative to the script's folder; a front that nobody knows is taken as
    that folder.
    """
    cleaned = name
    if UNKNOWN in name:
        cleaned = name.rpartition(UNKNOWN)[2].lstrip("/")
    if not cleaned or len(cleaned) > 1000 or "\0" in cleaned:
        return None
    try:
        path = (state.path.parent / cleaned).resolve()
        if not path.is_relative_to(state.work.root):
            note(state, f"{cleaned} is outside the script's folder and is not read")
            return None
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
