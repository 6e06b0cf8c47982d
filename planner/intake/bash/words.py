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
from planner.intake.bash.state import DEEPEST, State, lookup, spend, unknown_text
from planner.intake.bash.traced_text import (
    BREAK,
    Part,
    Piece,
    Source,
    Text,
    cut,
    fields,
    joined,
    plain,
    source,
    substituted,
)

_RUN = re.compile(r"[^\\'\"$`]+")
_QUOTED_RUN = re.compile(r"[^\\$`]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
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
    if state.depth > DEEPEST:
        return [
            Part(piece, False)
            for piece in unknown_text(f"${src.text[start:end][:30]}", unset=False)
        ]
    out: list[Part] = []
    run = _QUOTED_RUN if quoted else _RUN
    at = start
    while at < end:
        match = run.match(src.text, at, end)
        if match:
            out += _literal(src, at, match.end())
            at = match.end()
            continue
        char = src.text[at]
        if char == "\\":
            at = _escape(src, at, end, quoted, out)
        elif char in "$`":
            parts: list[Part] = []
            follow = _dollar if char == "$" else _backtick
            close = follow(state, src, at, end, quoted, parts)
            stood = cut(src, at, min(close, end))
            for part in parts:
                if part.piece is not None:
                    part = Part(substituted((part.piece,), stood)[0], part.split)
                out.append(part)
            at = close
        elif char == "'":
            close = src.text.find("'", at + 1, end)
            close = end if close < 0 else close
            out += _literal(src, at + 1, close) or [Part(Piece(""))]
            at = close + 1
        else:
            at = _double(state, src, at, end, out)
    return out


def _literal(src: Source, start: int, end: int) -> list[Part]:
    return [Part(piece) for piece in cut(src, start, end)]


def _escape(src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    following = src.text[at + 1 : at + 2] if at + 1 < end else ""
    if following == "\n":
        return at + 2
    keeps = quoted and following not in ("$", "`", '"', "\\")
    out += _literal(src, at if keeps else at + 1, min(at + 2, end))
    return at + 2


def _double(state: State, src: Source, at: int, end: int, out: list[Part]) -> int:
    close = closing(src.text, at + 1, end, '"')
    inner = expand(state, src, at + 1, close, quoted=True)
    arrays = re.search(r"\$\{?\w*(\[@\]|@)", src.text[at + 1 : close])
    out += inner if inner or arrays else [Part(Piece(""))]
    return close + 1


def _dollar(state: State, src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    whole = src.text
    if (
        whole.startswith("$((", at)
        and (close := closing(whole, at + 2, end, ")")) < end
        and whole.startswith("))", close - 1)
    ):
        out += [
            Part(piece, False)
            for piece in arithmetic(state, text(state, src, at + 3, close - 1, quoted=True))
        ]
        return close + 1
    if whole.startswith("$(", at):
        close = closing(whole, at + 2, end, ")")
        out += _substitution(state, cut(src, at + 2, close), whole[at : close + 1], quoted)
        return close + 1
    if whole.startswith("${", at):
        close = closing(whole, at + 2, end, "}")
        out += parameters.parameter(state, src, at + 2, close, quoted, expand)
        return close + 1
    if not quoted and whole.startswith(("$'", '$"'), at):
        return _special_quote(state, src, at, end, out)
    name = _NAME.match(whole, at + 1, end)
    if not name:
        out += _literal(src, at, at + 1)
        return at + 1
    out += variable(state, name[0], quoted)
    return name.end()


def _special_quote(state: State, src: Source, at: int, end: int, out: list[Part]) -> int:
    if src.text[at + 1] == '"':
        return _double(state, src, at + 1, end, out)
    close = at + 2
    while close < end and src.text[close] != "'":
        close += 2 if src.text[close] == "\\" else 1
    meant = re.sub(
        r"\\(.)",
        lambda found: _ANSI.get(found[1], found[0]),
        src.text[at + 2 : close],
        flags=re.DOTALL,
    )
    out.append(Part(Piece(meant)))
    return close + 1


def _backtick(state: State, src: Source, at: int, end: int, quoted: bool, out: list[Part]) -> int:
    close = at + 1
    while close < end and src.text[close] != "`":
        close += 2 if src.text[close] == "\\" else 1
    out += _substitution(state, cut(src, at + 1, min(close, end)), src.text[at : close + 1], quoted)
    return close + 1


def _substitution(state: State, body: Text, raw: str, quoted: bool) -> list[Part]:
    found = state.work.capture(state, source(body))
    short = " ".join(raw.split())
    called = f"$({short.strip('`')})" if raw.startswith("`") else short
    named = [
        replace(piece, unknown=called[:80]) if piece.unknown == "$" else piece for piece in found
    ]
    return [Part(piece, not quoted) for piece in named]


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
    return [Part(piece, not quoted) for piece in (unknown_text(name) if value is None else value)]


def elements(found: list[Text], apart: bool, quoted: bool) -> list[Part]:
    """Elements of an array: `apart` as words of their own, else parted by blanks."""
    out: list[Part] = []
    for index, one in enumerate(found):
        if index:
            out.append(BREAK if apart else Part(Piece(" "), not quoted))
        out += [Part(piece, not (quoted or apart)) for piece in one] or (
            [Part(Piece(""))] if quoted else []
        )
    return out


def closing(whole: str, at: int, end: int, close: str) -> int:
    """The offset of the bracket or quote that closes what began before `at`; `end` where nothing
    does.
    """
    open_ = [close]
    while at < end:
        char, top = whole[at], open_[-1]
        if char == "\\":
            at += 2
            continue
        if char == top:
            open_.pop()
            if not open_:
                return at
        elif char == "$" and whole[at + 1 : at + 2] in ("(", "{"):
            open_.append(")" if whole[at + 1] == "(" else "}")
            at += 1
        elif top != '"':
            if char == "'":
                quote = whole.find("'", at + 1, end)
                at = quote if quote >= 0 else at
            elif char == '"':
                open_.append('"')
            elif char == "(" and top == ")":
                open_.append(")")
        at += 1
    return end


def ranges(whole: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the blank-separated words of a stretch stand, quotes and substitutions kept
    together.
    """
    at = start
    begun = -1
    while at < end:
        char = whole[at]
        if char in " \t\n":
            if begun >= 0:
                yield begun, at
            begun = -1
            at += 1
            continue
        begun = at if begun < 0 else begun
        at = _over(whole, at, end)
    if begun >= 0:
        yield begun, min(at, end)


def _over(whole: str, at: int, end: int) -> int:
    """Past one character, quoted stretch or substitution."""
    char = whole[at]
    if char == "\\":
        return at + 2
    if char == "'":
        close = whole.find("'", at + 1, end)
        return end if close < 0 else close + 1
    if char == '"':
        return closing(whole, at + 1, end, '"') + 1
    if char == "`":
        close = whole.find("`", at + 1, end)
        return end if close < 0 else close + 1
    if char == "$" and whole[at + 1 : at + 2] in ("(", "{"):
        return closing(whole, at + 2, end, ")" if whole[at + 1] == "(" else "}") + 1
    return at + 1
