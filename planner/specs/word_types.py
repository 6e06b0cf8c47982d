"""Whether what a program passes to a verb is what the verb's words are declared to be."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from planner.errors import InputError, unknown
from planner.specs.documents import shown
from planner.specs.words import Question, QuestionWords

Verb = TypeVar("Verb", bound=Callable[..., Any])
_NAMED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    Question: "a question",
    Callable: "a function",
}


def checked(verb: Verb) -> Verb:
    """The verb, which raises InputError for a word that it does not have or that is of another type
    than declared. The words of a question are checked where it is built.
    """
    kinds, question = _declared(verb)

    @wraps(verb)
    def call(*given: Any, **words: Any) -> Any:
        positional = dict(zip(kinds, given, strict=False))
        for name in words:
            if name not in kinds and not question:
                raise unknown(f"a word of {verb.__name__}", name, kinds)
        plain = {name: _plain(value) for name, value in {**positional, **words}.items()}
        for name, value in plain.items():
            if name in kinds and not _fits(value, kinds[name]):
                raise _fault(name, value, kinds[name])
        first = [plain[name] for name in positional]
        return verb(*first, *given[len(first) :], **{name: plain[name] for name in words})

    return call  # type: ignore[return-value]


def _declared(verb: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Types of the parameters of a verb and of its words, and whether it takes those of a question,
    which are not among them.
    """
    names = vars(inspect.getmodule(verb))
    kinds: dict[str, Any] = {}
    question = False
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = eval(parameter.annotation, names)
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            kinds[name] = kind
            continue
        (words,) = get_args(kind)
        question = words is QuestionWords
        if not question:
            kinds |= get_type_hints(words)
    return kinds, question


def _plain(value: Any) -> Any:
    """Scalars and arrays of numpy as those of Python, a series of any kind as a tuple."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    return tuple(value) if isinstance(value, (Iterator, Set, range)) else value


def _fits(value: Any, kind: Any) -> bool:
    origin, members = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in members)
    if origin is Sequence:
        return isinstance(value, (list, tuple)) and all(_fits(each, members[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(name, members[0]) and _fits(each, members[1]) for name, each in value.items()
        )
    if Callable in (kind, origin):
        return callable(value)
    if isinstance(value, bool):
        return kind is bool
    taken: Any = {float: (int, float), Path: os.PathLike}.get(kind, kind)
    return isinstance(value, taken)


def _fault(name: str, value: Any, kind: Any) -> InputError:
    """What the word must be; of a list or mapping, what its first faulty member must be."""
    for member in (kind, *get_args(kind)):
        entries: Iterable[tuple[Any, Any]] = ()
        if get_origin(member) is Sequence and isinstance(value, (list, tuple)):
            entries = enumerate(value)
        if get_origin(member) is Mapping and isinstance(value, Mapping):
            entries = value.items()
        for key, entry in entries:
            inner = get_args(member)[-1]
            if not _fits(entry, inner):
                return _fault(f"{name}[{key!r}]", entry, inner)
    return InputError(f"{name} must be {_says(kind)}, but got {shown(value)}")


def _says(kind: Any) -> str:
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_says(member) for member in members if member is not NoneType)
    if origin is Sequence:
        return "a list" if members[0] is Any else f"a list, each entry {_says(members[0])}"
    if origin is Mapping:
        return f"words by name, each with {_says(members[1])}"
    return _NAMED[origin or kind]
