"""A guessed recipe as a file to edit: each field with what it means, and fields that are often changed as comments.

In: a `Given` with a model. Out: YAML, which means the same from any folder:

    train:
      # Passes over the training data; default: 3.
      epochs: 3
      # Optimizer steps; wins over epochs.
      # steps: 500
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seqfit.recipe import Recipe, apply_overrides
from seqfit.system import quote
from seqfit.validation import load_checked_recipe
from seqfit.yaml_text import write_yaml

if TYPE_CHECKING:
    from seqfit.inspection.data import Given

# Fields that many people change, as examples: they stand there as comments.
_OFTEN_CHANGED: dict[str, dict[str, Any]] = {
    "model": {"lora": {"rank": 16}},
    "task": {"max_source_tokens": 512, "language": "en"},
    "data": {"holdout": {"validation": 0.1, "test": 0.1}, "limit": {"train": 1000}},
    "train": {"steps": 500, "optimizer": {"name": "adafactor"}},
    "eval": {"every_steps": 200, "limit": 200, "early_stopping": {"patience": 3}},
}
_WIDTH = 118


def format_commented(given: Given, file: str) -> str:
    """Raises what is wrong with the recipe, all of it together. `file`: its name, for the commands on top."""
    recipe = load_checked_recipe(given.recipe, given.overrides).with_absolute_paths()
    assert isinstance(given.recipe, Mapping)
    values, _ = apply_overrides(dict(given.recipe), given.overrides)
    values["model"] |= {"path": recipe.model.path} if recipe.model.path is not None else {}
    values["data"] |= {"path": recipe.sources[0].path} if recipe.sources[0].path is not None else {}
    name = quote(file)
    commands = f"Check it: seqfit validate {name}   Plan it: seqfit plan {name}   Train it: seqfit train {name}"
    lines = ["A recipe guessed from the data. Every field: docs/recipes.md, or 'seqfit schema'.", commands, ""]
    lines += [f"guessed: {note}" for note in given.notes]
    head = [part for line in lines for part in _comment(line)]
    parts = [write_yaml({"description": values.pop("description")}).rstrip()] if "description" in values else []
    for part in ("model", "task", "data", "train", "eval"):
        schema = _schema_of(Recipe.model_fields[part])
        parts.append("\n".join(_format_part(part, values.pop(part, {}), schema)))
    parts += [write_yaml({name: value}).rstrip() for name, value in values.items()]
    return "\n".join(head) + "\n\n" + "\n\n".join(parts) + "\n"


def _schema_of(field: FieldInfo) -> type[BaseModel]:
    kinds = (field.annotation, *get_args(field.annotation))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


def _format_part(part: str, values: Mapping[str, Any], schema: type[BaseModel]) -> Iterator[str]:
    """A part without a value is a comment as a whole, or it would be null."""
    examples = {name: value for name, value in _OFTEN_CHANGED[part].items() if name not in values}
    mark = "" if values else "# "
    yield f"{mark}{part}:"
    for name, value in {**values, **examples}.items():
        is_example = name in examples
        description = schema.model_fields[name].description or ""
        yield from (f"{mark}  {line}" for line in _comment(description))
        for line in write_yaml({name: value}).splitlines():
            yield f"  # {line}" if is_example and values else f"{mark}  {line}"


def _comment(text: str) -> list[str]:
    return [
        f"# {line}" for line in textwrap.wrap(text, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    ] or ["#"]
