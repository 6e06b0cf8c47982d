"""The process that tells what Megatron-LM's own parser takes: PYTHONPATH names an unpacked wheel or
a checkout of any version since 0.14. Prints flag to choices as JSON.
"""

from __future__ import annotations

import argparse
import enum
import json
import sys
import types
from contextlib import suppress
from typing import Any
from unittest import mock

from megatron_judge import (  # beside this file: it runs as a script
    _stand_in_for_gpu,
    _stand_in_for_triton,
)

MACHINE = types.SimpleNamespace(
    major=9, minor=0, name="stand-in", total_memory=80 << 30, multi_processor_count=132
)


def import_arguments() -> types.ModuleType:
    """megatron.training.arguments, with a stand-in for each package that is not there."""
    while True:
        try:
            import megatron.training.arguments as arguments

            return arguments
        except ModuleNotFoundError as missing:
            name = str(missing.name)
            if name.startswith("megatron"):
                raise
            sys.modules[name] = mock.MagicMock(__path__=[], __version__="9.0")


def parser(arguments: types.ModuleType) -> argparse.ArgumentParser:
    """The parser of a version: it is made within parse_args, and taken where it would parse."""
    made = []

    def take(parser: argparse.ArgumentParser, *_: Any) -> None:
        made.append(parser)
        raise SystemExit

    sys.argv = ["pretrain_gpt.py"]
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", take),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", take),
        suppress(SystemExit),
    ):
        arguments.parse_args()
    return made[0]


def choices(action: argparse.Action) -> list[str]:
    """The words that an argument takes; none where it takes any of its type."""
    if action.choices:
        return [str(getattr(choice, "name", choice)) for choice in action.choices]
    convert = action.type
    if not isinstance(convert, types.FunctionType) or _takes(convert, "bogus"):
        return []
    return [word for word in _words(convert) if _takes(convert, word)]


def _words(convert: types.FunctionType) -> list[str]:
    """The words that a function names: members of its enumerations, and its own."""
    named = [convert.__globals__.get(name) for name in convert.__code__.co_names]
    words = [member.name for kind in named if isinstance(kind, enum.EnumMeta) for member in kind]
    for constant in convert.__code__.co_consts:
        many = constant if isinstance(constant, frozenset | tuple) else (constant,)
        words += sorted(word for word in many if isinstance(word, str) and word.isidentifier())
    return list(dict.fromkeys(words))


def _takes(convert: types.FunctionType, word: str) -> bool:
    try:
        convert(word)
    except Exception:
        return False
    return True


def main() -> None:
    _stand_in_for_triton()
    with suppress(ImportError, AttributeError):  # versions without all of these modules
        _stand_in_for_gpu(MACHINE)
    every = {}
    for action in parser(import_arguments())._actions:
        for flag in action.option_strings:
            every[flag] = choices(action)
    print("\n" + json.dumps(every))


if __name__ == "__main__":
    main()
