"""Front doors: what other packages may use of a package is listed in its `__init__.pyi`, at most 18 names."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

import seqfit
from seqfit.doors import read_door

PACKAGE = Path(seqfit.__file__).parent
MOST_NAMES = 18
DOORS = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())
DOORS.remove("cli")  # nobody imports it
# Functions called like their module: the import system would put the module in the function's place.
PUBLIC = {"audit", "download", "evaluate", "export_figures", "plan", "profile", "scale", "track", "train", "trim"}


@cache
def list_imports() -> list[tuple[tuple[str, ...], str, str]]:
    """File, module and name of every import from seqfit within it."""
    return [
        (file.relative_to(PACKAGE).parts, str(node.module), alias.name)
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("seqfit.")
        for alias in node.names
    ]


def imports_from_outside(package: str) -> list[tuple[str, str]]:
    """File and name of every import from a package's modules by another package."""
    return [
        ("/".join(inside), name)
        for inside, module, name in list_imports()
        if module.startswith(f"seqfit.{package}.") and inside[0] != package
    ]


@pytest.mark.parametrize("package", DOORS)
def test_other_packages_use_the_door_only(package: str) -> None:
    past = [(file, name) for file, name in imports_from_outside(package) if name not in PUBLIC]
    assert past == []


@pytest.mark.parametrize("package", DOORS)
def test_a_door_is_narrow_and_all_its_names_are_there(package: str) -> None:
    names = read_door(PACKAGE / package)
    assert len(names) <= MOST_NAMES
    module = importlib.import_module(f"seqfit.{package}")
    assert module.__all__ == sorted(names)
    for name in names:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


@pytest.mark.parametrize("package", DOORS)
def test_no_name_of_a_door_is_a_modules(package: str) -> None:
    """`from seqfit.training import train` would be the module or the function, whichever was imported first."""
    names = read_door(PACKAGE / package)
    twice = [name for name in names if (PACKAGE / package / f"{name}.py").is_file()]
    assert [name for name in twice if names[name] != f"seqfit.{package}"] == []
