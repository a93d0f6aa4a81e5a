"""`seqfit.train(recipe)` is a function, although `seqfit.train` is a package, too.

Importing a package binds it to its parent under its own name, so a function of that name would vanish as soon as
anything imports the package. Here the parent binds another object in its place: it is called, documented and inspected
as the function, and has the package's attributes.

    make_callable("seqfit.train", "seqfit.training.train")
    seqfit.train(...)                    seqfit.training.train.train(...)
    inspect.signature(seqfit.train)      that of the function; help() shows its docstring
    seqfit.training.train                     the module
    sys.modules["seqfit.train"]          the package
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_homes: dict[str, str] = {}  # package -> module with the function


class PublicFunction:
    """A package as its parent shows it: the function of the same name, imported when it is first needed."""

    __slots__ = ("_package",)
    _package: ModuleType

    def __init__(self, package: ModuleType) -> None:
        object.__setattr__(self, "_package", package)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)

    @property
    def __wrapped__(self) -> Callable[..., Any]:  # which inspect.signature follows
        package = self._package.__name__
        function: Callable[..., Any] = getattr(importlib.import_module(_homes[package]), package.rpartition(".")[2])
        return function

    @property
    def __name__(self) -> str:
        return self._package.__name__.rpartition(".")[2]

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__wrapped__.__doc__

    @property
    def __module__(self) -> str:  # type: ignore[override]
        return _homes[self._package.__name__]

    def __get__(self, _instance: object, _owner: type | None = None) -> PublicFunction:
        return self  # pydoc and inspect take what has this for a routine

    def __repr__(self) -> str:
        return f"<function {self._package.__name__}, of the package of that name>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._package, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._package, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._package, name)

    def __dir__(self) -> list[str]:
        return dir(self._package)


class _Parent(ModuleType):
    """A package that binds some of its packages as functions."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and value.__name__ in _homes:
            value = PublicFunction(value)
        super().__setattr__(name, value)


def make_callable(package: str, home: str) -> None:
    """Let a package be called: for its own __init__, before its parent binds it. `home` is the function's module."""
    _homes[package] = home
    parent = sys.modules[package.rpartition(".")[0]]
    parent.__class__ = _Parent
