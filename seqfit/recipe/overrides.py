"""Changes from the command line, applied to a recipe's values before they are validated; and the schema by dotted path.

    {"train": {"epochs": 3}}  +  ["train.learning_rate=3e-4", "~train.epochs"]  ->  {"train": {"learning_rate": 0.0003}}

A value is read as YAML where the field accepts the result, else as plain text: `task.prefix=summarize: ` needs no
second quoting, although YAML would read a mapping. Which it is depends on the type at the path, `train.optimizer` ->
OptimizerRecipe, `data.0.path` -> text; error messages use the same to suggest names.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from seqfit.errors import RecipeError, did_you_mean
from seqfit.recipe.schema import Recipe, RecipePart
from seqfit.yaml_text import read_yaml

OverrideKey = str | int


def join_path(path: Iterable[OverrideKey]) -> str:
    return ".".join(map(str, path))


def union_members(annotation: Any) -> list[Any]:
    """The alternatives of a type, without None and without constraints."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in union_members(part)]
    return [] if annotation is type(None) else [annotation]


def is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, RecipePart)


def annotation_at(path: Sequence[OverrideKey], schema: type[RecipePart] = Recipe) -> Any | None:
    annotation: Any = schema
    for key in path:
        found = _inside(annotation, key)
        if found is None and str(key).isdecimal():
            found = _inside(annotation, int(key))  # on the command line an index is text
        if found is None:
            return None
        annotation = found
    return annotation


def names_at(path: Sequence[OverrideKey], schema: type[RecipePart] = Recipe) -> list[str]:
    """The keys that may stand below a path; empty where any may, or none."""
    names: list[str] = []
    for member in union_members(annotation_at(path, schema)):
        if is_part(member):
            names += member.model_fields
        elif get_origin(member) is dict and get_origin(get_args(member)[0]) is Literal:
            names += get_args(get_args(member)[0])
    return names


def _inside(annotation: Any, key: OverrideKey) -> Any | None:
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


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    values, mistakes = copy.deepcopy(values), []
    for override in overrides:
        try:
            _apply(values, override)
        except RecipeError as error:
            mistakes.append(str(error))
    return values, mistakes


def overridden_paths(overrides: Sequence[str]) -> list[str]:
    """The dotted paths that overrides set: ['train.steps=3', '~seed'] -> ['train.steps']."""
    return [override.partition("=")[0] for override in overrides if not override.startswith("~")]


def _apply(values: dict[str, Any], override: str) -> None:
    if override.startswith("~"):
        _remove(values, override[1:].split("."), override)
        return
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        rule = "An override sets a field or removes it"
        raise RecipeError(f"'{override}' is given", rule, "Write field=value, such as train.steps=3, or ~field")
    path = dotted.split(".")
    holder: Any = values
    for depth, key in enumerate(path[:-1]):
        place = _place(holder, key, path[:depth], override)
        inner = holder[place] if isinstance(holder, list) else holder.get(place)
        holder[place] = {} if inner is None else inner
        holder = holder[place]
    holder[_place(holder, path[-1], path[:-1], override)] = _parse(path, text)


def _remove(values: dict[str, Any], path: list[str], override: str) -> None:
    for depth, key in enumerate(path):
        if annotation_at(path[: depth + 1]) is None:
            known = names_at(path[:depth])
            place = f"'{join_path(path[:depth])}'" if depth else "A recipe"
            rule = f"{place} has {', '.join(known) or 'no fields'}"
            change = did_you_mean(key, known).strip() or "Remove one of these"
            raise RecipeError(f"{override}: there is no field '{key}'", rule, change)
    holder: Any = values
    for depth, key in enumerate(path[:-1]):
        place = _place(holder, key, path[:depth], override)
        holder = holder[place] if isinstance(holder, list) else holder.get(place)
        if holder is None:
            return  # it was not given in the first place
    place = _place(holder, path[-1], path[:-1], override)
    if isinstance(holder, list) or place in holder:
        del holder[place]


def _place(holder: Any, key: str, above: list[str], override: str) -> Any:
    """The key of a list, as a number, or of a mapping."""
    where = join_path(above)
    if isinstance(holder, list):
        if key.isdecimal() and int(key) < len(holder):
            return int(key)
        rule = f"Its items are numbered from 0 to {len(holder) - 1}"
        raise RecipeError(f"{override}: {where} is a list of {len(holder)}", rule, f"Write {where}.0 for the first")
    if not isinstance(holder, dict):
        rule = "It has no fields to set or remove"
        raise RecipeError(f"{override}: {where} is {holder!r}", rule, f"Set it whole: {where}=...")
    if key.isdecimal() and any(is_part(member) for member in union_members(annotation_at(above))):
        rule = "Only items of a list are numbered"
        raise RecipeError(f"{override}: {where} is not a list here", rule, f"Write the field without '{key}.'")
    return key


def _parse(path: list[str], text: str) -> Any:
    try:
        value, _ = read_yaml(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        return value if text.strip().startswith(("'", '"')) else text  # YAML would strip spaces and comments
    annotation = annotation_at(path)
    if annotation is None and isinstance(value, dict) and not text.lstrip().startswith("{"):
        return text  # an unknown field: 'summarize: ' is more likely text than a mapping
    accepts: TypeAdapter[Any] = TypeAdapter(Any if annotation is None else annotation)
    return text if not _is_valid(accepts, value) and _is_valid(accepts, text) else value


def _is_valid(accepts: TypeAdapter[Any], value: Any) -> bool:
    try:
        accepts.validate_python(value)
    except ValidationError:
        return False
    return True
