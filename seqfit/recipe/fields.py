"""What the schema knows at a dotted path: `train.optimizer` -> OptimizerRecipe, `data.0.path` -> text.

Overrides and error messages both ask this, the first to read a value, the second for "did you mean".
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from seqfit.recipe.schema import Part, Recipe

Key = str | int


def join_path(path: Iterable[Key]) -> str:
    """['data', 0, 'path'] -> 'data.0.path'."""
    return ".".join(map(str, path))


def union_members(annotation: Any) -> list[Any]:
    """The alternatives of a type, without None and without constraints."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in union_members(part)]
    return [] if annotation is type(None) else [annotation]


def is_part(annotation: Any) -> bool:
    """Whether a type is a section of the recipe, with fields of its own."""
    return isinstance(annotation, type) and issubclass(annotation, Part)


def annotation_at(path: Sequence[Key], schema: type[Part] = Recipe) -> Any | None:
    """The type of the field at a path, or None where the schema has no such field."""
    annotation: Any = schema
    for key in path:
        found = _inside(annotation, key)
        if found is None and str(key).isdecimal():
            found = _inside(annotation, int(key))  # on the command line a number is text, too
        if found is None:
            return None
        annotation = found
    return annotation


def names_at(path: Sequence[Key], schema: type[Part] = Recipe) -> list[str]:
    """The keys that may stand below a path; empty where any may, or none."""
    names: list[str] = []
    for member in union_members(annotation_at(path, schema)):
        if is_part(member):
            names += member.model_fields
        elif get_origin(member) is dict and get_origin(get_args(member)[0]) is Literal:
            names += get_args(get_args(member)[0])
    return names


def _inside(annotation: Any, key: Key) -> Any | None:
    """The type below a key: a name leads into a part or a mapping, a number into a list."""
    for member in union_members(annotation):
        if member is Any:
            return Any
        if isinstance(key, str) and is_part(member) and key in member.model_fields:
            return member.model_fields[key].annotation
        if isinstance(key, str) and get_origin(member) is dict:
            return get_args(member)[1]
        if isinstance(key, int) and get_origin(member) in (list, tuple):
            return get_args(member)[0]
    return None
