"""Rooms that are named after a command can be called: `seqfit.train(recipe)`, although `seqfit.train` is a package.

Importing a package binds it to its parent under its own name, so a function of that name would vanish as soon as
anything imports the room. The room itself therefore answers the call, by the function that it names.

    make_callable("seqfit.train", "seqfit.train.run")     # seqfit.train(...) == seqfit.train.run.train(...)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """A package whose call is that of its function of the same name, imported when it is first called."""

    _home: str

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        function = getattr(importlib.import_module(self._home), self.__name__.rpartition(".")[2])
        return function(*arguments, **options)


def make_callable(room: str, home: str) -> None:
    """Let the package `room` be called; `home` is the module with the function."""
    module = sys.modules[room]
    module.__class__ = _CallableRoom
    module._home = home  # type: ignore[attr-defined]
