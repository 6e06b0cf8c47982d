"""The command line: parse, call one verb, print. One command a file; only typer and the commands'
signatures are imported at start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from planner import __version__
from planner.errors import InputError

COMMANDS = (
    "recommend",
    "explain",
    "compare",
    "check",
    "simulate",
    "tune",
    "calibrate",
    "validate",
    "emit",
    "models",
    "clusters",
    "schedules",
    "stacks",
    "switches",
    "doctor",
)
"""Each is a function in the file of its name, in the order that --help lists them."""
INTERRUPTED = 130
# Of click, or of the copy inside typer: whichever this version of typer raises.
_ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class _Command(TyperCommand):
    """A command whose options are each stated once, unless they are made to be repeated: of two
    values one would be lost.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            order = self.make_parser(ctx).parse_args(list(args))[2]
            for option in order:
                loses = option.param_type_name == "option" and not getattr(option, "multiple", True)
                only_on = getattr(option, "is_flag", False) and not option.secondary_opts
                if loses and not only_on and order.count(option) > 1:
                    names = " or ".join((*option.opts, *option.secondary_opts))
                    raise InputError(
                        f"{names} must be stated once, but got it twice; leave one out"
                    )
        return super().parse_args(ctx, args)


def app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The application with the named commands registered."""
    made = typer.Typer(
        name="ppplan",
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": 100},
    )
    made.callback()(_ppplan)
    for name in names:
        made.command(name, cls=_Command)(getattr(import_module(f"planner.cli.{name}"), name))
    return made


def _version(show: bool) -> None:
    if show:
        typer.echo(f"ppplan {__version__}")
        raise typer.Exit


def _ppplan(
    version: bool = typer.Option(
        False, "--version", help="Prints the version.", is_eager=True, callback=_version
    ),
) -> None:
    """Plans and tunes the parallelism of LLM training from an analytic cost model."""


def run(arguments: list[str] | None = None) -> None:
    """Runs one command and exits: 0 yes or done, 1 no, 2 the input is wrong. Unexpected exceptions
    pass through.
    """
    sys.exit(code(arguments))


def code(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. Of the commands only the one that is called is
    imported.
    """
    given = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        result = app(given[:1] if given[0] in COMMANDS else COMMANDS)(
            args=given, prog_name="ppplan", standalone_mode=False
        )
        sys.stdout.flush()
        if result == INTERRUPTED:
            _says("interrupted")
        return result if isinstance(result, int) else 0
    except InputError as fault:
        return _says(" ".join(str(fault).split()))
    except typer.Exit as done:
        return done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        _says("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter must not complain while it closes
        # stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _ClickException as fault:
        return _says(_usage(fault))


def _usage(fault: BaseException) -> str:
    context = getattr(fault, "ctx", None)
    message = " ".join(str(getattr(fault, "format_message", fault.__str__)()).split())
    return f"{message} (see {context.command_path} --help)" if context else message


def _says(message: str) -> int:
    typer.echo(f"ppplan: {message}", err=True)
    return 2
