"""A bash script followed symbolically: what it would set and which commands it would run. Nothing
is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.intake.bash import commands, control_flow
from planner.intake.bash.arithmetic import number
from planner.intake.bash.conditions import Truth, test
from planner.intake.bash.control_flow import place, truth_of
from planner.intake.bash.grammar import parse
from planner.intake.bash.redirects import redirected
from planner.intake.bash.slurm_header import header
from planner.intake.bash.state import (
    DEEPEST,
    State,
    Variable,
    Work,
    assign,
    child,
    lookup,
    note,
    spend,
    unknown_text,
)
from planner.intake.bash.traced_text import EMPTY, Piece, Source, Text, first_unknown, source
from planner.intake.bash.words import text, words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_NESTED = 40
"""Statements within statements."""


def run(state: State, src: Source) -> Truth:
    """Follows a text's statements in order; the status of the last."""
    if state.depth > DEEPEST:
        note(state, f"{state.file}: nested deeper than {DEEPEST} calls: the rest is not followed")
        return None
    spend(state, len(src.text))
    root = parse(src.text, state.file)
    return several(state, src, root.children, 0)


def several(state: State, src: Source, nodes: list[Node], nested: int) -> Truth:
    status: Truth = True
    for node in nodes:
        if state.ended:
            break
        if node.is_named and node.type != "comment":
            status = statement(state, src, node, nested)
    return status


def statement(state: State, src: Source, node: Node, nested: int = 0) -> Truth:
    """One statement; its exit status where that is known."""
    spend(state, 100)
    if nested > MAX_NESTED:
        note(
            state,
            f"{state.file}: nested deeper than {MAX_NESTED} statements: the rest is not followed",
        )
        return None
    handler = HANDLERS.get(node.type)
    return (
        handler(state, src, node, nested + 1)
        if handler
        else several(state, src, node.children, nested + 1)
    )


def _command(state: State, src: Source, node: Node, nested: int) -> Truth:
    before: list[tuple[str, Variable]] = []
    spans: list[tuple[int, int]] = []
    for one in node.children:
        if one.type == "variable_assignment" and not spans:
            before.append(_assigned(state, src, one))
        elif one.type in ("comment", "herestring_redirect", "file_redirect", "heredoc_redirect"):
            continue
        elif spans and spans[-1][1] == one.start_byte:
            spans[-1] = (spans[-1][0], one.end_byte)
        else:
            spans.append((one.start_byte, one.end_byte))
    found: list[Text] = []
    for start, end in spans:
        found += words(state, src, start, end)
    given = {name: value for name, value in before if not isinstance(value, list)}
    return commands.command(state, found, given, place(state, src, node))


def _assigned(state: State, src: Source, node: Node) -> tuple[str, Variable]:
    """Name and new value of `a=b`, `a+=b`, `a=(...)`, `a[1]=b`."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    whole = src.text[node.start_byte : node.end_byte]
    equals = re.match(r"[\w]+(?:\[[^\]]*\])?(\+?=)", whole)
    name = re.match(r"\w*", whole)
    if target is None or equals is None or name is None:
        return "_", EMPTY
    if value is not None and value.type == "array":
        new: Variable = _array(state, src, value)
    else:
        new = text(state, src, node.start_byte + equals.end(), node.end_byte)
    return name[0], _combined(
        state, name[0], new, equals[1] == "+=", whole[len(name[0]) : equals.start(1)]
    )


def _array(state: State, src: Source, node: Node) -> list[Text]:
    inner = [one for one in node.children if one.type not in ("(", ")", "comment")]
    spans: list[tuple[int, int]] = []
    for one in inner:
        if spans and spans[-1][1] == one.start_byte:
            spans[-1] = (spans[-1][0], one.end_byte)
        else:
            spans.append((one.start_byte, one.end_byte))
    return [word for start, end in spans for word in words(state, src, start, end)]


def _combined(state: State, name: str, new: Variable, appended: bool, index: str) -> Variable:
    before = lookup(state, name)
    if index and not isinstance(new, list):
        items = list(before) if isinstance(before, list) else []
        at = number(state, (Piece(index[1:-1]),)) if re.fullmatch(r"\[\w+\]", index) else None
        return (
            [*items[:at], new, *items[at + 1 :]]
            if at is not None and 0 <= at <= len(items)
            else [*items, new]
        )
    if not appended or before is None:
        return new
    if isinstance(before, list):
        return (
            [*before, *new]
            if isinstance(new, list)
            else [(*before[0], *new), *before[1:]]
            if before
            else [new]
        )
    return [before, *new] if isinstance(new, list) else (*before, *new)


def _assignment(state: State, src: Source, node: Node, nested: int) -> Truth:
    assign(state, *_assigned(state, src, node))
    return True


def _declaration(state: State, src: Source, node: Node, nested: int) -> Truth:
    """export, declare, local, readonly, typeset."""
    exports = (
        node.children[0].type == "export"
        or re.search(r"\s-[a-zA-Z]*x", src.text[node.start_byte : node.start_byte + 60]) is not None
    )
    for one in node.children[1:]:
        if one.type == "variable_assignment":
            name, value = _assigned(state, src, one)
            assign(state, name, value)
        elif one.type == "variable_name":
            name = src.text[one.start_byte : one.end_byte]
        elif one.type == "word" and src.text.startswith("-n", one.start_byte):
            exports = False
            continue
        else:
            for word in words(state, src, one.start_byte, one.end_byte):
                commands.exported(state, word, exports)
            continue
        if exports:
            state.exported[name] = None
    return True


def _unset(state: State, src: Source, node: Node, nested: int) -> Truth:
    for name in re.findall(r"[A-Za-z_]\w*", src.text[node.start_byte + 5 : node.end_byte]):
        state.variables.pop(name, None)
        state.exported.pop(name, None)
    return True


def _test(state: State, src: Source, node: Node, nested: int) -> Truth:
    whole = src.text[node.start_byte : node.end_byte]
    if whole.startswith("(("):
        return truth_of(state, src, node.start_byte + 2, node.end_byte - 2)
    double = whole.startswith("[[")
    size = 2 if double else 1
    return test(
        state, src, node.start_byte + size, node.end_byte - size, double, place(state, src, node)
    )


def _function(state: State, src: Source, node: Node, nested: int) -> Truth:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        state.functions[src.text[name.start_byte : name.end_byte]] = (src, body)
    return True


def _subshell(state: State, src: Source, node: Node, nested: int) -> Truth:
    inner = child(state, out=state.out)
    return several(inner, src, node.children, nested)


def _compound(state: State, src: Source, node: Node, nested: int) -> Truth:
    if node.children and node.children[0].type == "((":
        return truth_of(state, src, node.start_byte + 2, node.end_byte - 2)
    return several(state, src, node.children, nested)


def _pipeline(state: State, src: Source, node: Node, nested: int) -> Truth:
    before, out = state.stdin, state.out
    status: Truth = True
    stages = [one for one in node.children if one.is_named and one.type != "comment"]
    for index, stage in enumerate(stages):
        state.out = out if index == len(stages) - 1 else []
        status = statement(state, src, stage, nested)
        state.stdin = tuple(piece for made in state.out for piece in made)
    state.stdin, state.out = before, out
    return status


def _redirected(state: State, src: Source, node: Node, nested: int) -> Truth:
    return redirected(state, src, node, lambda one: statement(state, src, one, nested))


def capture(state: State, src: Source) -> Text:
    """The output of a substitution: an UNKNOWN called `$` where a command would have to be run."""
    inner = child(state, silent=True, depth=state.depth + 1, branches=1)
    run(inner, src)
    whole = tuple(piece for made in inner.out for piece in made)
    first = first_unknown(whole)
    if first:
        return (first,) if first.unset else unknown_text("$", unset=False)
    return _stripped(whole)


def _stripped(whole: Text) -> Text:
    while whole and not whole[-1].text.rstrip("\n"):
        whole = whole[:-1]
    if not whole:
        return EMPTY
    last = whole[-1]
    short = last.text.rstrip("\n")
    return whole if short == last.text else (*whole[:-1], replace(last, text=short))


HANDLERS: dict[str, Callable[[State, Source, Node, int], Truth]] = {
    "command": _command,
    "variable_assignment": _assignment,
    "declaration_command": _declaration,
    "unset_command": _unset,
    "test_command": _test,
    "if_statement": control_flow.if_,
    "case_statement": control_flow.case_,
    "for_statement": control_flow.for_,
    "while_statement": control_flow.loop_,
    "c_style_for_statement": control_flow.counted_,
    "function_definition": _function,
    "list": control_flow.list_,
    "negated_command": control_flow.negated_,
    "subshell": _subshell,
    "compound_statement": _compound,
    "pipeline": _pipeline,
    "redirected_statement": _redirected,
}


def _stated(sets: Mapping[str, str], name: str) -> Text:
    return (Piece(sets[name], via=name, origin="option"),) if name in sets else unknown_text(name)


def follow(path: Path, body: str, sets: Mapping[str, str]) -> Work:
    """A script followed from its first line to its last; `sets` are variables (or positional
    parameters) that hold whatever it says.

    Raises InputError where it cannot be read within its limits.
    """
    work = Work(path.parent.resolve(), sets, capture, several, run, texts={str(path): body})
    state = State(work, str(path), path)
    numbered = [int(name) for name in sets if name.isdigit() and len(name) < 4]
    here = (Piece(str(path.parent), origin="environment"),)
    state.variables = {"PWD": here, "SLURM_SUBMIT_DIR": here, "BASH_SOURCE": [(Piece(str(path)),)]}
    state.positional = [_stated(sets, str(one)) for one in range(1, max(numbered, default=0) + 1)]
    src = source((Piece(body, str(path), 0),))
    header(state, src)
    run(state, src)
    return work
