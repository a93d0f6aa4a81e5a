"""The order of the packages (docs: the design, section 2), read from the imports with ast."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqfit
from seqfit.doors import read_door

PACKAGE = Path(seqfit.__file__).parent
# Each line may import from the lines above it, and never from its own.
LAYERS = (
    ("errors", "units", "yaml_text", "doors"),
    ("system",),
    ("hub", "model_configs", "own_functions", "paths", "processes", "progress", "tables"),
    ("cache",),
    ("recipe",),
    ("strategy", "hardware", "rundir"),
    ("tasks", "metrics", "telemetry"),
    ("data", "kernels", "validation"),
    ("model", "conversion"),
    ("inspection", "trimming", "step"),
    ("parallel",),
    ("generation",),
    ("evaluation",),
    ("planning",),
    ("training",),
    ("launch", "profiling", "export"),
    ("scaling", "comparison"),
    ("reporting", "tracking"),
    ("serving",),
    ("studies", "doctor", "selftest"),
    ("cli",),
    ("__main__",),
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(file) for file in MODULES}


def package_of(module: str) -> str:
    """'seqfit.data.loader' -> 'data'; '' for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports_of(file: Path) -> Iterator[str]:
    """The modules of seqfit that a file imports, inside functions too, but not for type checking alone."""
    todo: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo.extend(node.orelse)
            continue
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "seqfit")
        elif isinstance(node, ast.ImportFrom):
            yield from _from_import(node, file)


def _from_import(node: ast.ImportFrom, file: Path) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        above = module_name(file).split(".")
        above = above if file.name == "__init__.py" else above[:-1]
        base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [base])])
    if base.split(".")[0] == "seqfit":
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in NAMES else base


def named(file: Path) -> str:
    return str(file.relative_to(PACKAGE.parent))


@pytest.mark.parametrize("file", MODULES, ids=named)
def test_a_package_imports_only_from_those_below_it(file: Path) -> None:
    package = package_of(module_name(file))
    foreign = {package_of(module) for module in imports_of(file)} - {package, ""}
    if package:
        assert {other for other in foreign if LEVEL[other] >= LEVEL[package]} == set()
    else:
        assert foreign == {"doors"}  # the public names are imported when they are asked for


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {package_of(module_name(file)) for file in MODULES} - {""}
    assert packages <= set(LEVEL)


def test_the_picture_of_the_packages_in_the_documents_is_that_order() -> None:
    """Highest first: a line of docs/architecture.md's picture is a line of `LAYERS`, as far as it exists yet."""
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
    picture = re.split(r"\n \|\n", text.split("```")[1].strip())
    drawn = [tuple(re.split(", ", re.split(r" {2,}", line)[0])) for line in picture]
    packages = {package_of(module_name(file)) for file in MODULES}
    layers = [tuple(name for name in names if name in packages) for names in LAYERS]
    assert [set(names) for names in drawn] == [
        set(names) for names in reversed(layers) if names and "__main__" not in names
    ]


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module_name(file): set(imports_of(file)) - {module_name(file)} for file in MODULES}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(MODULES)


@pytest.mark.parametrize("file", MODULES, ids=named)
def test_every_module_has_a_docstring(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "common", "helpers", "base", "misc"}
    assert [named(file) for file in MODULES if file.stem in drawers] == []


def test_every_public_name_is_listed_where_it_lives() -> None:
    homes = read_door(PACKAGE)
    assert set(seqfit.__all__) == {*homes, "__version__"}
    assert set(homes.values()) <= NAMES


def test_no_public_name_is_defined_in_two_modules() -> None:
    homes: dict[str, list[str]] = {}
    for file in MODULES:
        for name in sorted(defined_names(ast.parse(file.read_text("utf-8")))):
            homes.setdefault(name, []).append(named(file))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in ("Candidate", "command", "main", "T")} == {}


def defined_names(module: ast.Module) -> set[str]:
    """Functions, classes and constants at the top of a module, without those that begin with an underscore."""
    found = {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return {name for name in found if not name.startswith("_")}
