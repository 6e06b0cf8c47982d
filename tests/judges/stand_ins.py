"""Modules in place of packages that a parser imports and does not use: compiled kernels, data sets,
loggers. For a process of its own.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock


class _Open(type):
    """Of classes that have every attribute, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Anything(metaclass=_Open):
    def __init__(self, *words: Any, **named: Any) -> None:
        """Whatever it is given."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


class _Module(types.ModuleType):
    __path__: ClassVar[list[str]] = []
    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Open(name, (_Anything,), {}) if name[0].isupper() else mock.MagicMock(name=name)
        setattr(self, name, made)
        return made


class _Finder:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(name == one or name.startswith(f"{one}.") for one in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in(*names: str) -> None:
    """From now on an import of a name, or of what lies in it, gives a module that has
    everything.
    """
    sys.meta_path.insert(0, _Finder(names))  # type: ignore[arg-type]
