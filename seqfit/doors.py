"""The front door of a package: the names that other packages may use, each written once, imported when it is used.

`__init__.pyi` lists them, which is what a type checker reads; `__init__.py` hands its own name to `open_door`:

    seqfit/strategy/__init__.pyi    from seqfit.strategy.load import load_strategy as load_strategy
    seqfit/strategy/__init__.py     __getattr__, __dir__, __all__ = open_door(__name__)

    from seqfit.strategy import load_strategy     imports seqfit.strategy.load, and nothing else of the package

So `seqfit --help` stays fast, and reading a recipe does not import torch. tests/structure/test_doors.py checks that
other packages use no other names. seqfit's own door has the public names.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def read_door(package: Path) -> dict[str, str]:
    """Name -> the module that has it, or the package itself where the name is a module's."""
    return {name: module for module, name in _LINE.findall((package / "__init__.pyi").read_text("utf-8"))}


def open_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__`."""
    names = read_door(Path(str(sys.modules[package].__file__)).parent)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if names[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(names[name]), name)  # not kept: a test may replace it in its module

    return get, lambda: sorted(names), sorted(names)
