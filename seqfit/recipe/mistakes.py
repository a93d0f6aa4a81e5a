"""pydantic's errors in our words: one sentence per mistake, with the field's dotted path in front.

    train: {learning_rat: 1}   ->   train.learning_rat: unknown field. Did you mean 'learning_rate'?
    task: {source: 5}          ->   task.source: 5 is given; this must be text or a list. Template of the ...

The one idea: where a field takes either of two types (`data`: a mapping or a list), pydantic reports what is wrong
with each. Only the errors of the type that the user wrote are kept, so that no mistake is reported twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from seqfit.errors import did_you_mean
from seqfit.recipe.overrides import OverrideKey, annotation_at, is_part, join_path, names_at, union_members
from seqfit.recipe.schema import RecipePart

Path = tuple[OverrideKey, ...]
_Part = TypeVar("_Part", bound=RecipePart)


class Mistake(NamedTuple):
    """Where, and what is wrong there; as text 'train.steps: unknown field.', or without a path the sentence alone."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        return f"{join_path(self.path)}: {self.sentence}" if self.path else self.sentence


def validate_part(part: type[_Part], values: Any, within: Path = ()) -> tuple[_Part | None, list[Mistake]]:
    """The part with these values, or None and every mistake once; their paths begin with `within`."""
    try:
        return part.model_validate(values), []
    except ValidationError as error:
        details = error.errors()
    found: dict[Mistake, None] = {}
    for detail in details:
        path = _field_path(detail["loc"], values, part)
        if path is not None:
            found[Mistake((*within, *path), _sentence(detail, path, part))] = None
    return None, list(found)


def report_mistakes(name: str, lines: Sequence[str | Mistake], verb: str = "has") -> str:
    count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return "\n".join([f"{name} {verb} {count}:", *(f"  {line}" for line in lines)])


def _field_path(location: Path, values: Any, schema: type[RecipePart]) -> Path | None:
    """The location without pydantic's names of types; None where it is about a type that was not written."""
    path: list[OverrideKey] = []
    rest = [key for key in location if key != "[key]"]
    while rest:
        members = _members(tuple(path), schema)
        if len(members) > 1:
            tag = str(rest.pop(0))
            written = [member for member in members if _is_written_as(member, values)]
            if written and not any(_has_tag(member, tag) for member in written):
                return None
        if rest:
            path.append(rest[0])
            values = _inside(values, rest.pop(0))
    return tuple(path)


def _inside(values: Any, key: OverrideKey) -> Any:
    if isinstance(values, list):
        return values[key] if isinstance(key, int) and key < len(values) else None
    return values.get(key) if isinstance(values, Mapping) else None


def _is_written_as(member: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return is_part(member) or get_origin(member) is dict
    if isinstance(value, list):
        return get_origin(member) is list
    return isinstance(value, str) and member is str


def _has_tag(member: Any, tag: str) -> bool:
    """Whether pydantic means this type by 'str', 'list[str]' or 'function-after[check(), SourceRecipe]'."""
    origin = get_origin(member)
    if origin is not None:
        return tag.startswith(f"{origin.__name__}[")
    return member.__name__ in tag and not tag.startswith(("list[", "dict["))


def _sentence(detail: ErrorDetails, path: Path, schema: type[RecipePart]) -> str:
    kind, given = detail["type"], detail["input"]
    if kind == "missing":
        return "needed, but not given." + _description(path, schema)
    if kind == "value_error":
        return f"{detail['ctx']['error']}."
    if kind == "string_type" and isinstance(given, int | float) and len(_members(path, schema)) < 2:
        return f"{_shown(given)} is not text. Write it in quotes: '{_shown(given)}'."
    if kind == "extra_forbidden" or "[key]" in detail["loc"]:
        known = names_at(path[:-1], schema)
        return "unknown field." + (did_you_mean(str(path[-1]), known) or f" Known here: {', '.join(known)}.")
    if kind == "literal_error":
        choices = detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        return f"{given!r} is none of {', '.join(choices)}.{did_you_mean(str(given), choices)}"
    return f"{_shown(given)} is given; this {_requirement(detail, path, schema)}.{_description(path, schema)}"


def _members(path: Path, schema: type[RecipePart]) -> list[Any]:
    return union_members(annotation_at(path, schema))


def _shown(given: Any) -> str:
    """As YAML writes it, shortened to fit a line."""
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _requirement(detail: ErrorDetails, path: Path, schema: type[RecipePart]) -> str:
    members = _members(path, schema)
    if len(members) > 1:
        names: dict[Any, str] = {str: "text", list: "a list"}
        return "must be " + " or ".join(names.get(get_origin(member) or member, "a mapping") for member in members)
    if len(members) == 1 and is_part(members[0]):
        return f"must be a mapping with fields such as {', '.join(list(members[0].model_fields)[:3])}"
    rule = detail["msg"].replace("Input should", "must").split(", unable to")[0]
    return rule.replace("a valid dictionary", "a mapping").replace("a valid string", "text")


def _description(path: Path, schema: type[RecipePart]) -> str:
    """What the field does: who got it wrong may not know."""
    for member in _members(path[:-1], schema):
        if is_part(member) and path[-1] in member.model_fields:
            return f" {member.model_fields[path[-1]].description}"
    return ""
