"""A user's own Python function, named in a recipe as FILE.py:FUNCTION: a metric, or a change of every row.

    eval.metrics: [squad, my_metrics.py:fuzzy_match]     data.map: prep.py:clean

The file is imported once per process, with its folder on the module path, so it may import its neighbours. Its SHA-256
goes into the run, because other code gives other scores (files that it imports are not part of it). A function that a
program passes to `seqfit.train` is known under its file's name, or as `memory:NAME` where it has none that could be
imported again: in a notebook, or in the program that is running.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.errors import RecipeError, RowError, did_you_mean

_MEMORY = "memory:"
_MAP_RULE = "A function of data.map takes a row as a dict and returns a dict, or None to leave the row out"
_EXAMPLE = "Write it as FILE.py:FUNCTION, such as my_metrics.py:fuzzy_match"


@dataclass(frozen=True)
class OwnFunction:
    spec: str  # as in the recipe
    name: str
    sha256: str  # of its file; of its source for a function without one
    call: Callable[..., Any]

    @property
    def parameters(self) -> list[str]:
        try:
            return list(inspect.signature(self.call).parameters)
        except (TypeError, ValueError):  # of a builtin
            return []


_known: dict[str, OwnFunction] = {}


def is_own_function(spec: str) -> bool:
    return spec.startswith(_MEMORY) or (spec.rpartition(":")[0].endswith(".py"))


def anchor_function(spec: str, folder: Path) -> str:
    """With an absolute path if the file exists there; otherwise as it is, and the error will show it."""
    file, _, name = spec.rpartition(":")
    path = (folder / Path(file).expanduser()) if file else folder
    return f"{path.resolve()}:{name}" if file.endswith(".py") and path.is_file() else spec


def load_function(spec: str, field: str) -> OwnFunction:
    """`field`: of the recipe, for errors."""
    if spec in _known and (
        spec.startswith(_MEMORY) or _known[spec].sha256 == _hash_file(Path(spec.rpartition(":")[0]))
    ):
        return _known[spec]
    if spec.startswith(_MEMORY):
        raise RecipeError(
            f"{field} is '{spec}', a function that a program passed to seqfit.train",
            "It was in that program's memory only",
            f"Put it into a file and name that, such as {field}=my_functions.py:{spec.removeprefix(_MEMORY)}",
        )
    file, _, name = spec.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise RecipeError(
            f"{field} names '{spec}', and there is no file {path}",
            "A path is relative to the recipe's folder, or else to the working directory",
            _EXAMPLE,
        )
    module = _import(path, spec, field)
    call = getattr(module, name, None)
    if not callable(call):
        own = [
            one
            for one, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise RecipeError(
            f"{field} names '{spec}', and {path.name} has no function '{name}'",
            f"Its functions are {', '.join(own) or 'none'}",
            f"Name one of them.{did_you_mean(name, own)}",
        )
    _known[spec] = OwnFunction(spec, name, _hash_file(path), call)
    return _known[spec]


def remember_function(call: Callable[..., Any]) -> str:
    """A spec for a function of this program."""
    name = getattr(call, "__name__", "")
    module = sys.modules.get(getattr(call, "__module__", None) or "")
    if not name.isidentifier():
        raise RecipeError(
            f"metrics has {call!r}", "A metric is a function with a name, which its score gets", "Define it with def"
        )
    file = getattr(module, "__file__", None)
    if module is not None and file and module.__name__ != "__main__" and getattr(module, name, None) is call:
        path = Path(str(file)).resolve()
        spec, digest = f"{path}:{name}", _hash_file(path)
    else:
        try:
            source = inspect.getsource(call).encode()
        except (OSError, TypeError):  # typed into an interpreter
            source = repr(getattr(getattr(call, "__code__", None), "co_code", name)).encode()
        spec, digest = f"{_MEMORY}{name}", hashlib.sha256(source).hexdigest()
    _known[spec] = OwnFunction(spec, name, digest, call)
    return spec


def list_functions(specs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Field and spec -> what a run's manifest says of each own function."""
    found = [(field, load_function(spec, field)) for field, spec in specs if is_own_function(spec)]
    return [{"field": field, "function": own.spec, "sha256": own.sha256} for field, own in found]


def list_changes(trained: Iterable[Mapping[str, str]], present: Iterable[Mapping[str, str]]) -> list[str]:
    """Sentences about functions that are not what they were; both as `list_functions` gives them."""
    known = {one["function"]: one["sha256"] for one in trained}
    return [
        f"{one['function']} ({one['field']}) has changed since training began: its SHA-256 was "
        f"{known[one['function']][:12]}, is {one['sha256'][:12]}; scores are those of its present content"
        for one in present
        if one["function"] in known and known[one["function"]] != one["sha256"]
    ]


def explain_failure(own: OwnFunction, error: BaseException) -> str:
    """'fuzzy_match raised KeyError: 'x' (my_metrics.py, line 12)'."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{own.name} raised {type(error).__name__}: {error}{where}"


def map_row(own: OwnFunction, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row as a function of data.map changes it; None: left out. Whatever else happens is a RowError."""
    try:
        found = own.call(dict(row))
    except Exception as error:  # whatever a user's code raises
        cause, given = f"{own.name} raised {type(error).__name__}", explain_failure(own, error)
        raise RowError(given, _MAP_RULE, f"Correct {own.spec}", cause=cause) from error
    if found is None:
        return None
    if not isinstance(found, Mapping):
        what = f"{own.name} returned {type(found).__name__}"
        raise RowError(f"{what} {str(found)[:60]!r}", _MAP_RULE, f"Correct {own.spec}", cause=what)
    return dict(found)


def _import(path: Path, spec: str, field: str) -> Any:
    digest = _hash_file(path)
    module_name = f"seqfit_own_{path.stem}_{digest[:12]}"
    found = importlib.util.spec_from_file_location(module_name, path.resolve())
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # SystemExit: a script that is meant to be run
        del sys.modules[module_name]
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.resolve())
        ]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        raise RecipeError(
            f"{field} names '{spec}', and {path.name} can't be imported: {type(error).__name__}: {error}"
            + (f" (line {line})" if line else ""),
            "The file is imported before training",
            "Correct it, or install what it needs",
        ) from error
    return module


def _hash_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.expanduser().read_bytes()).hexdigest()
    except OSError:
        return ""
