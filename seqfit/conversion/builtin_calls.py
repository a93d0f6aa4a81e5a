"""Builtins, and methods of texts, lists and dicts, that a script calls: int(), len(), os.path.join(), text.strip(), ...

Of constants they are computed; of a column's text they give that text again, and a change of it (lower, re.sub) is
noted, because a recipe takes the column as it is.
"""

from __future__ import annotations

from typing import Any

from seqfit.conversion.operations import format_text, join_text
from seqfit.conversion.values import Columns, ColumnText, Imported, Thing, Unknown, Zipped, element_of, is_constant

_SAME_TEXT = {
    *("strip", "rstrip", "lstrip", "tolist", "to_list", "copy", "astype", "flatten", "squeeze", "values", "numpy"),
    *("item", "str", "list", "int", "float", "fillna", "next", "iter", "tuple"),
}
_TEXT_METHODS = {
    *("strip", "lstrip", "rstrip", "lower", "upper", "replace", "split", "removeprefix", "removesuffix", "rsplit"),
    *("title", "startswith", "endswith", "partition", "rpartition"),
}


def call_builtin(
    columns: Columns, name: str, path: str, owner: Any, args: list[Any], kwargs: dict[str, Any], line: int
) -> Any:
    """The call of a builtin, or of a method of a constant or a text; Unknown where it is none that is known."""
    first = args[0] if args else None
    if isinstance(owner, ColumnText) or (isinstance(first, ColumnText) and owner is None):
        return _call_of_text(columns, name, owner, args, line)
    if isinstance(owner, Imported) and isinstance(first, ColumnText):
        columns.note_change(first, path, line)  # re.sub(..., text), clean(text)
        return first
    for one in (owner, *args, *kwargs.values()):
        is_ours = isinstance(owner, Thing | Unknown) or is_constant(owner)
        if isinstance(one, Unknown) and is_ours:
            return one
    if name in ("int", "float", "str", "bool", "abs", "round", "len", "max", "min") and owner is None:
        kinds = {"int": int, "float": float, "str": str, "bool": bool, "abs": abs, "round": round, "len": len}
        try:
            many = args[0] if len(args) == 1 and isinstance(first, list) else args
            if name in ("max", "min"):
                return {"max": max, "min": min}[name](many)
            if name == "len" or all(map(is_constant, args)):
                return kinds[name](*args)  # type: ignore[operator]
        except (TypeError, ValueError):
            return Unknown(f"{path}() does not take it")
    if name in ("join", "Path", "PosixPath", "abspath", "expanduser", "as_posix", "resolve", "absolute"):
        pieces = [owner, *args] if name in ("as_posix", "resolve", "absolute") else args
        if name == "join" and isinstance(owner, str):
            inside = first if isinstance(first, list) else []
            return join_text([one for part in inside for one in (part, owner)][:-1])
        if pieces and all(isinstance(one, str) for one in pieces):
            return "/".join([*(one.rstrip("/") for one in pieces[:-1]), pieces[-1]])
    if name == "dict" and owner is None:
        return {**(first if isinstance(first, dict) else {}), **kwargs}
    if name in ("list", "tuple", "set", "sorted") and owner is None and args:
        return first
    if name == "zip" and owner is None:
        return list(args) if not all(isinstance(one, ColumnText) for one in args) else Zipped(args)
    if name == "enumerate" and args:
        return Zipped([Unknown("it counts"), element_of(first)])
    if name in ("getenv", "get") and path.startswith("os."):
        default = args[1] if len(args) > 1 else None
        return Unknown("it is an environment variable" + (f", by default {default}" if default is not None else ""))
    if isinstance(owner, str) and name in _TEXT_METHODS and all(map(is_constant, args)):
        try:
            return getattr(owner, name)(*args, **kwargs)
        except (TypeError, ValueError, IndexError, KeyError):
            return Unknown(f".{name}() does not take it")
    if isinstance(owner, str) and name == "format":
        return format_text(owner, args, kwargs)
    if isinstance(owner, dict) and name in ("get", "pop"):
        return owner.get(first, args[1] if len(args) > 1 else None) if is_constant(first) else Unknown("its key")
    if isinstance(owner, dict) and name == "update" and isinstance(first, dict):
        owner.update(first | kwargs)
        return owner
    if isinstance(owner, dict) and name == "update":
        owner.update(kwargs)
        return owner
    if isinstance(owner, dict) and name == "copy":
        return dict(owner)
    if isinstance(owner, list) and name in ("append", "extend"):
        owner += [first] if name == "append" else first if isinstance(first, list) else []
        return owner
    if isinstance(owner, Thing) and owner.kind == "row" and name == "get" and isinstance(first, str):
        return columns.find(first)
    if isinstance(owner, Thing) and owner.kind == "encoded":
        return owner
    return Unknown(f"{path}() is known only when it runs")


def _call_of_text(columns: Columns, name: str, owner: Any, args: list[Any], line: int) -> Any:
    """A call of text from a column: its own method, or str(text)."""
    if name == "len":
        return Unknown("it depends on the row")
    if name in ("zip",):
        return Zipped(args)
    if name == "enumerate":
        return Zipped([Unknown("it counts"), args[0]])
    if name == "join" and isinstance(owner, ColumnText):
        return owner
    template = owner if isinstance(owner, ColumnText) else args[0]
    if name not in _SAME_TEXT:
        columns.note_change(template, name, line)
    return template
