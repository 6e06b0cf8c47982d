"""Words of a shell script: quotes, variables and substitutions expanded, as bash does, without
running anything.
"""

# NOTE: tree-sitter parses the statements; words are read here character by character, because many
# of them are no text of a file: what `eval`, `bash -c`, a heredoc or `${x:-...}` expand to
# is put together of stretches of several places, and each must keep its own for `check --fix`.
# A tree would have to be parsed anew of every such text.

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from planner.intake.bash import parameters
from planner.intake.bash.arithmetic import arithmetic
from planner.intake.bash.state import MAX_DEPTH, State, lookup, spend, unknown_text
from planner.intake.bash.traced_text import (
    Part,
    Piece,
    Source,
    Text,
    cut,
    elements,
    fields,
    joined,
    parts,
    plain,
    source,
    substituted,
)

_RUN = re.compile(r"[^\\'\"$`]+")
_QUOTED_RUN = re.compile(r"[^\\$`]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
_CLOSING = {"(": ")", "{": "}"}
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def words(state: State, src: Source, start: int, end: int) -> list[Text]:
    """The words that bash makes of one argument."""
    made = fields(expand(state, src, start, end))
    if len(made) == 1:
        stood = cut(src, start, end)
        if len(made[0]) != 1 or plain(made[0]) != plain(stood):
            return [substituted(made[0], stood, word=True)]
    return made


def text(state: State, src: Source, start: int, end: int, quoted: bool = False) -> Text:
    """One text, as on the right of an assignment; `quoted` as in a heredoc, where quotes are plain
    characters.
    """
    return joined(expand(state, src, start, end, quoted))


def expand(state: State, src: Source, start: int, end: int, quoted: bool = False) -> list[Part]:
    """Parts of a word. Inside double quotes (`quoted`) nothing is split and quotes are plain."""
    spend(state, end - start)
    if state.depth > MAX_DEPTH:
        return parts(unknown_text(f"${src.text[start:end][:30]}", unset=False))
    out: list[Part] = []
    run = _QUOTED_RUN if quoted else _RUN
    at = start
    while at < end:
        match = run.match(src.text, at, end)
        if match:
            out += parts(cut(src, at, match.end()))
            at = match.end()
            continue
        char = src.text[at]
        if char == "\\":
            at = _escape(src, at, end, quoted, out)
        elif char in "$`":
            inner: list[Part] = []
            follow = _dollar if char == "$" else _backtick
            close = follow(state, src, at, end, quoted, inner)
            stood = cut(src, at, min(close, end))
            for part in inner:
                if part.piece is not None:
                    part = Part(substituted((part.piece,), stood)[0], part.split)
                out.append(part)
            at = close
        elif char == "'":
            close = _find(src.text, "'", at + 1, end)
            out += parts(cut(src, at + 1, close)) or [Part(Piece(""))]
            at = close + 1
        else:
            at = _double(state, src, at, end, out)
    return out


def _escape(src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    following = src.text[at + 1 : min(at + 2, end)]
    if following == "\n":
        return at + 2
    kept = quoted and following not in ("$", "`", '"', "\\")
    out += parts(cut(src, at if kept else at + 1, min(at + 2, end)))
    return at + 2


def _double(state: State, src: Source, at: int, end: int, out: list[Part]) -> int:
    close = closing(src.text, at + 1, end, '"')
    inner = expand(state, src, at + 1, close, quoted=True)
    arrays = re.search(r"\$\{?\w*(\[@\]|@)", src.text[at + 1 : close])
    out += inner if inner or arrays else [Part(Piece(""))]
    return close + 1


def _dollar(state: State, src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    script = src.text
    if script.startswith("$(", at):
        close = closing(script, at + 2, end, ")")
        if script.startswith("((", at + 1) and close < end and script.startswith("))", close - 1):
            out += parts(arithmetic(state, text(state, src, at + 3, close - 1, quoted=True)))
        else:
            out += _substitution(state, cut(src, at + 2, close), script[at : close + 1], quoted)
        return close + 1
    if script.startswith("${", at):
        close = closing(script, at + 2, end, "}")
        out += parameters.parameter(state, src, at + 2, close, quoted, expand)
        return close + 1
    if not quoted and script.startswith(("$'", '$"'), at):
        return _special_quote(state, src, at, end, out)
    name = _NAME.match(script, at + 1, end)
    if not name:
        out += parts(cut(src, at, at + 1))
        return at + 1
    out += variable(state, name[0], quoted)
    return name.end()


def _special_quote(state: State, src: Source, at: int, end: int, out: list[Part]) -> int:
    if src.text[at + 1] == '"':
        return _double(state, src, at + 1, end, out)
    close = parameters.unescaped(src.text, "'", at + 2, end)
    raw = src.text[at + 2 : close]
    meant = re.sub(r"\\(.)", lambda match: _ANSI.get(match[1], match[0]), raw, flags=re.DOTALL)
    out.append(Part(Piece(meant)))
    return close + 1


def _backtick(state: State, src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    close = parameters.unescaped(src.text, "`", at + 1, end)
    out += _substitution(state, cut(src, at + 1, min(close, end)), src.text[at : close + 1], quoted)
    return close + 1


def _substitution(state: State, body: Text, raw: str, quoted: bool) -> list[Part]:
    called = " ".join(raw.split())
    if raw.startswith("`"):
        called = f"$({called.strip('`')})"
    out = []
    for piece in state.work.capture(state, source(body)):
        if piece.unknown == "$":
            piece = replace(piece, unknown=called[:80])
        out.append(Part(piece, not quoted))
    return out


def variable(state: State, name: str, quoted: bool) -> list[Part]:
    """`$name`, `$1`, `$@`, `$#`."""
    if name in ("@", "*"):
        return elements(state.positional, quoted and name == "@", quoted)
    if name == "#":
        return [Part(Piece(str(len(state.positional))))]
    if name == "?":
        return [Part(Piece("0"))]
    value = lookup(state, name)
    if isinstance(value, list):
        value = value[0] if value else ()
    if value is None:
        value = unknown_text(name)
    return parts(value, not quoted)


def _find(script: str, char: str, at: int, end: int) -> int:
    """The offset of a character from `at` on; `end` where there is none."""
    offset = script.find(char, at, end)
    return end if offset < 0 else offset


def closing(script: str, at: int, end: int, close: str) -> int:
    """The offset of the bracket or quote that closes what began before `at`; `end` where nothing
    does.
    """
    open_ = [close]
    while at < end:
        char, top = script[at], open_[-1]
        if char == "\\":
            at += 2
            continue
        if char == top:
            open_.pop()
            if not open_:
                return at
        elif script.startswith(("$(", "${"), at):
            at += 1
            open_.append(_CLOSING[script[at]])
        elif top != '"':
            if char == "'":
                quote = script.find("'", at + 1, end)
                at = quote if quote >= 0 else at
            elif char == '"':
                open_.append('"')
            elif char == "(" and top == ")":
                open_.append(")")
        at += 1
    return end


def ranges(script: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the blank-separated words of a stretch stand, quotes and substitutions kept
    together.
    """
    at = start
    begun = -1
    while at < end:
        char = script[at]
        if char in " \t\n":
            if begun >= 0:
                yield begun, at
            begun = -1
            at += 1
            continue
        if begun < 0:
            begun = at
        at = _over(script, at, end)
    if begun >= 0:
        yield begun, min(at, end)


def _over(script: str, at: int, end: int) -> int:
    """Past one character, quoted stretch or substitution."""
    char = script[at]
    if char == "\\":
        return at + 2
    if char in ("'", "`"):
        return _find(script, char, at + 1, end) + 1
    if char == '"':
        return closing(script, at + 1, end, '"') + 1
    if script.startswith(("$(", "${"), at):
        return closing(script, at + 2, end, _CLOSING[script[at + 1]]) + 1
    return at + 1
