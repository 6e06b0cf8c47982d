"""The options that several commands share: one word, one meaning, one help text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar, get_args

import typer

from planner.cli import complete
from planner.specs.words import LAYOUT, Question, Word, declared

Command = TypeVar("Command", bound=Callable[..., Any])


def integer(value: str | int) -> int:
    """A whole number as an option (or its default) states it; the range is the question's
    matter.
    """
    text = str(value)
    if not (text.isascii() and text.removeprefix("-").isdecimal()):
        raise typer.BadParameter(f"must be a whole number, but got {text[:40]!r}")
    if len(text) > 30:
        raise typer.BadParameter(
            f"must be a whole number of at most 30 digits, but got {len(text):,}"
        )
    return int(text)


def decimal(value: str | float) -> float:
    """A number as an option states it."""
    try:
        return float(value)
    except ValueError:
        raise typer.BadParameter(f"must be a number, but got {str(value)[:40]!r}") from None


def share(value: str | float) -> float:
    """A fraction of 1 (0.1 for 10%), finite and not negative."""
    number = decimal(value)
    if not 0 <= number <= 1e9:
        raise typer.BadParameter(
            f"must be a share of at least 0, such as 0.1 for 10%, but got {str(value)[:40]!r}"
        )
    return number


File = Annotated[
    str | None,
    typer.Argument(
        help="A recipe.yaml or plan.yaml; options restate words of it.", show_default=False
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(help="One of them, in full.", show_default=False, autocompletion=complete.name),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[
    str | None,
    typer.Option("--out", help="Folder for plan.yaml and the launch files.", metavar="DIR"),
]
Launcher = Annotated[
    str,
    typer.Option(
        "--launcher",
        help="torchrun, slurm, deepspeed, kubernetes or skypilot.",
        metavar="NAME",
        autocompletion=complete.launcher,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="accelerate (deepspeed, torch) or bridge (megatron); default: the framework.",
        metavar="NAME",
        autocompletion=complete.format,
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report", help="Writes the answer as one HTML page with charts.", metavar="FILE.html"
    ),
]
Script = Annotated[
    str | None,
    typer.Option("--script", help="Your own training script in the launch files.", metavar="PATH"),
]


def takes(
    kind: type, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """The command with an option for every word that `kind` declares, in place of its `**words`.

    only: these words; without: all but these. A word for which the command has a parameter of its
    own keeps it. The options stand before the command's keyword-only ones.
    """

    def with_options(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
        left_out = {*without, *(parameter.name for parameter in own)}
        added = []
        for name in only or declared(kind):
            if name not in left_out:
                added += _parameters(name, *declared(kind)[name])
        parameters = [
            parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for parameter in sorted([*own, *added], key=_is_keyword_only)
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return with_options


def option(name: str) -> Any:
    """The option of a word of the question."""
    return _option(name, *declared(Question)[name])


def _parameters(name: str, kind: Any, word: Word) -> list[inspect.Parameter]:
    """The parameter of a word, and beside --recompute its short form."""
    option = _option(name, kind, word)
    made = [_parameter(name, Annotated[_on_the_line(kind), option], word.default)]
    if name == "recompute" and word.panel == LAYOUT:
        short = typer.Option(
            "--no-recompute", help="Short for --recompute none.", rich_help_panel=LAYOUT
        )
        made.append(_parameter("no_recompute", Annotated[bool, short], False))
    return made


def _is_keyword_only(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.KEYWORD_ONLY


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _option(name: str, kind: Any, word: Word) -> Any:
    flag = f"--{name.replace('_', '-')}"
    types = _types(kind)
    if bool in types and word.default is None:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return typer.Option(
        *([flag, word.short] if word.short else [flag]),
        help=word.help,
        metavar=word.metavar,
        rich_help_panel=word.panel or None,
        show_default=word.default is not None,
        parser={(int,): integer, (float,): decimal}.get(types),
        autocompletion=getattr(complete, word.complete) if word.complete else None,
    )


def _on_the_line(kind: Any) -> Any:
    """The type as a command line states it: text where there are several, a list where several
    values may be named.
    """
    types = _types(kind)
    if len(types) > 1:
        return str | None
    if getattr(types[0], "__origin__", None) in (tuple, list):
        return list[str] | None
    return types[0] | None


def _types(kind: Any) -> tuple[Any, ...]:
    """The members of a union without None."""
    if getattr(kind, "__origin__", None) is None and get_args(kind):
        return tuple(member for member in get_args(kind) if member is not type(None))
    return (kind,)


def question_words(words: Mapping[str, Any]) -> dict[str, Any]:
    """The words as they were stated: repeated options as one tuple, each also split at commas.
    --no-recompute is a word of its own on the command line alone.
    """
    from planner.errors import InputError

    given = {}
    for name, value in words.items():
        if isinstance(value, list):
            value = tuple(part.strip() for text in value for part in text.split(",")) or None
        if value is not None:
            given[name] = value
    if given.pop("no_recompute", False):
        if given.get("recompute", "none") != "none":
            raise InputError(
                "recompute must be stated once, but got --no-recompute and --recompute"
                f" {given['recompute']}"
            )
        given["recompute"] = "none"
    return given


def question(file: str | None, words: Mapping[str, Any], layout: bool = False) -> Question:
    """The question of a file, of options, or of a file with options that restate it; with `layout`
    a saved plan states its layout.
    """
    from planner.specs.plan import restated

    return restated(file, question_words(words), "the command line", layout)


def listed(options: list[str] | None) -> list[str]:
    """Repeated options as one list, each also split at commas, in the order given, none twice."""
    parts = [part.strip() for text in options or () for part in text.split(",")]
    return list(dict.fromkeys(part for part in parts if part))
