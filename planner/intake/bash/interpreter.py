"""A bash script followed symbolically: what it would set and which commands it would run. Nothing
is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from planner.intake.bash import commands, control_flow
from planner.intake.bash.arithmetic import number
from planner.intake.bash.conditions import Truth, test
from planner.intake.bash.control_flow import arithmetic_truth, node_place
from planner.intake.bash.grammar import parse
from planner.intake.bash.redirects import REDIRECTS, redirected
from planner.intake.bash.slurm_header import header
from planner.intake.bash.state import (
    MAX_DEPTH,
    State,
    Variable,
    Work,
    assign,
    lookup,
    note,
    spend,
    subshell,
    unknown_text,
)
from planner.intake.bash.traced_text import (
    EMPTY,
    Piece,
    Source,
    Text,
    concatenated,
    cut,
    first_unknown,
    plain,
    source,
)
from planner.intake.bash.words import text, words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_NESTED = 40
"""Statements within statements."""
_ASSIGNMENT = re.compile(r"(?P<name>\w+)(?P<index>(?:\[[^\]]*\])?)(?P<sign>\+?=)")


def run(state: State, src: Source) -> Truth:
    """Follows a text's statements in order; the status of the last."""
    if state.depth > MAX_DEPTH:
        note(state, f"{state.file}: nested deeper than {MAX_DEPTH} calls: the rest is not followed")
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
    handler = HANDLERS.get(node.type, _compound)
    return handler(state, src, node, nested + 1)


def _command(state: State, src: Source, node: Node, nested: int) -> Truth:
    given: dict[str, Text] = {}
    arguments: list[Node] = []
    for child in node.children:
        if child.type == "variable_assignment" and not arguments:
            name, value = _assigned(state, src, child)
            if not isinstance(value, list):
                given[name] = value
        elif child.type != "comment" and child.type not in REDIRECTS:
            arguments.append(child)
    return commands.command(
        state, _words_of(state, src, arguments), given, node_place(state, src, node)
    )


def _words_of(state: State, src: Source, nodes: list[Node]) -> list[Text]:
    """Words of nodes; those that touch make one argument."""
    spans: list[tuple[int, int]] = []
    for node in nodes:
        start = node.start_byte
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, node.end_byte))
    out: list[Text] = []
    for start, end in spans:
        out += words(state, src, start, end)
    return out


def _assigned(state: State, src: Source, node: Node) -> tuple[str, Variable]:
    """Name and new value of `a=b`, `a+=b`, `a=(...)`, `a[1]=b`."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    match = _ASSIGNMENT.match(src.text, node.start_byte, node.end_byte)
    if target is None or match is None:
        return "_", EMPTY
    new: Variable
    if value is not None and value.type == "array":
        items = [child for child in value.children if child.type not in ("(", ")", "comment")]
        new = _words_of(state, src, items)
    else:
        new = text(state, src, match.end(), node.end_byte)
    appended = match["sign"] == "+="
    return match["name"], _combined(state, match["name"], new, appended, match["index"])


def _combined(state: State, name: str, new: Variable, appended: bool, index: str) -> Variable:
    before = lookup(state, name)
    if index and not isinstance(new, list):
        items = list(before) if isinstance(before, list) else []
        at = number(state, (Piece(index[1:-1]),)) if re.fullmatch(r"\[\w+\]", index) else None
        if at is None or not 0 <= at <= len(items):
            at = len(items)
        items[at : at + 1] = [new]
        return items
    if not appended or before is None:
        return new
    if isinstance(new, list):
        return [*before, *new] if isinstance(before, list) else [before, *new]
    if isinstance(before, list):
        return [(*concatenated(before[:1]), *new), *before[1:]]
    return (*before, *new)


def _assignment(state: State, src: Source, node: Node, nested: int) -> Truth:
    assign(state, *_assigned(state, src, node))
    return True


def _declaration(state: State, src: Source, node: Node, nested: int) -> Truth:
    """export, declare, local, readonly, typeset."""
    begin = src.text[node.start_byte : node.start_byte + 60]
    exports = bool(node.children[0].type == "export" or re.search(r"\s-[a-zA-Z]*x", begin))
    for child in node.children[1:]:
        if child.type == "variable_assignment":
            name, value = _assigned(state, src, child)
            assign(state, name, value)
        elif child.type == "variable_name":
            name = src.text[child.start_byte : child.end_byte]
        elif child.type == "word" and src.text.startswith("-n", child.start_byte):
            exports = False
            continue
        else:
            for word in words(state, src, child.start_byte, child.end_byte):
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
    start, end = node.start_byte, node.end_byte
    if src.text.startswith("((", start):
        return arithmetic_truth(state, src, start + 2, end - 2)
    if src.text.startswith("[[", start):
        return test(state, src, start + 2, end - 2, double=True)
    return test(state, src, start + 1, end - 1, double=False)


def _function(state: State, src: Source, node: Node, nested: int) -> Truth:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        state.functions[src.text[name.start_byte : name.end_byte]] = (src, body)
    return True


def _subshell(state: State, src: Source, node: Node, nested: int) -> Truth:
    inner = subshell(state, out=state.out)
    return several(inner, src, node.children, nested)


def _compound(state: State, src: Source, node: Node, nested: int) -> Truth:
    if node.children and node.children[0].type == "((":
        return arithmetic_truth(state, src, node.start_byte + 2, node.end_byte - 2)
    return several(state, src, node.children, nested)


def _pipeline(state: State, src: Source, node: Node, nested: int) -> Truth:
    before, out = state.stdin, state.out
    status: Truth = True
    stages = [stage for stage in node.named_children if stage.type != "comment"]
    for stage in stages:
        state.out = out if stage is stages[-1] else []
        status = statement(state, src, stage, nested)
        state.stdin = concatenated(state.out)
    state.stdin, state.out = before, out
    return status


def _redirected(state: State, src: Source, node: Node, nested: int) -> Truth:
    return redirected(state, src, node, lambda body: statement(state, src, body, nested))


def capture(state: State, src: Source) -> Text:
    """The output of a substitution: an UNKNOWN called `$` where a command would have to be run."""
    inner = subshell(state, silent=True, depth=state.depth + 1, branches=1)
    run(inner, src)
    printed = concatenated(inner.out)
    first = first_unknown(printed)
    if first:
        return (first,) if first.unset else unknown_text("$", unset=False)
    size = len(plain(printed).rstrip("\n"))
    return cut(source(printed), 0, size)


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


def _argument(sets: Mapping[str, str], name: str) -> Text:
    """A positional parameter of the script itself."""
    if name in sets:
        return (Piece(sets[name], via=name, origin="option"),)
    return unknown_text(name)


def follow(
    path: Path,
    body: str,
    sets: Mapping[str, str],
    script: Text = EMPTY,
    files: Mapping[str, Text] | None = None,
    variables: Mapping[str, Text] | None = None,
) -> Work:
    """A script followed from its first line to its last; `sets` are variables (or positional
    parameters) that hold whatever it says.

    script: where the file is not the script itself, the part of it that is. files: that stand in
    it, too, by name. variables: of the environment that it states.
    Raises InputError where it cannot be read within its limits.
    """
    work = Work(path.parent.resolve(), sets, capture, several, run, texts={str(path): body})
    work.written.update(files or {})
    state = State(work, str(path), path)
    numbered = [int(name) for name in sets if name.isdigit() and len(name) < 4]
    count = max(numbered, default=0)
    here = (Piece(str(path.parent), origin="environment"),)
    state.variables = {"PWD": here, "SLURM_SUBMIT_DIR": here, "BASH_SOURCE": [(Piece(str(path)),)]}
    for name, value in (variables or {}).items():
        assign(state, name, value)
        state.exported[name] = None
    state.positional = [_argument(sets, str(index + 1)) for index in range(count)]
    src = source(script or (Piece(body, str(path), 0),))
    header(state, src)
    run(state, src)
    return work
