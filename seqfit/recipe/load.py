"""Recipes from a library name, a YAML file, a run directory or a mapping: where -> a checked, frozen `Recipe`.

The layers are merged in order, later ones win, lists are replaced whole:

    base.yaml      {train: {steps: 100, batch_examples: 8}}
    mine.yaml      {extends: base.yaml, train: {steps: 50}}
    overrides      train.learning_rate=1e-4
                   -> {train: {steps: 50, batch_examples: 8, learning_rate: 0.0001}}

All mistakes are collected and reported in one `RecipeError`. A relative path in a file is relative to that file if
there is such a place, else to the working directory; in an override it is always relative to the working directory.

A warm-up that is longer than the run, where the learning rate would never reach its value, is shortened if it is
inherited, and warned about if it is stated:

    extends: t5-gsm8k, whose warm-up is 100 steps, and steps: 15   ->   1 step, a tenth of the run; an event
    warmup_steps: 100 and steps: 15 in the file itself             ->   kept; a warning
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seqfit.errors import RecipeError
from seqfit.own_functions import anchor_function
from seqfit.recipe.arguments import RECIPES, RUN_RECIPE, resolve
from seqfit.recipe.library import LIBRARY
from seqfit.recipe.mistakes import Mistake, report_mistakes, validate_part
from seqfit.recipe.overrides import OverrideKey, annotation_at, apply_overrides, join_path, overridden_paths
from seqfit.recipe.schema import WARMUP, WARMUP_SHARE, Recipe, RecipePart
from seqfit.recipe.trainer_names import explain_argument, find_argument, format_together, merge_changes
from seqfit.yaml_text import read_yaml, write_yaml

_TOO_LONG = 0.5  # of the run; a longer one that was inherited is shortened


def fit_warmup(values: dict[str, Any], *, is_stated: bool) -> tuple[dict[str, Any], str | None]:
    """A recipe's values, with an inherited warm-up shortened to fit few `train.steps`, and a sentence about it."""
    train = _mapping(values.get("train"))
    schedule = _mapping(train.get("schedule"))
    steps, warm_up = train.get("steps"), schedule.get("warmup_steps")
    if is_stated or not isinstance(steps, int) or not isinstance(warm_up, int) or warm_up <= _TOO_LONG * steps:
        return values, None
    shorter = int(WARMUP_SHARE * steps)
    changed = values | {"train": train | {"schedule": schedule | {"warmup_steps": shorter}}}
    return changed, (
        f"{WARMUP} is {shorter}, a tenth of the run: the recipe's own {warm_up} are for more than {steps} steps; "
        f"set {WARMUP} to choose another"
    )


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class _Layer:
    """One file or mapping, as written, with its name for messages and its folder for relative paths."""

    name: str
    folder: Path | None
    values: dict[str, Any]
    mistakes: list[str]


@dataclass(frozen=True)
class RecipeReading:
    """A recipe as it was read: the recipe, or what the schema finds wrong with it."""

    layers: list[_Layer]
    overrides: Sequence[str]
    written: dict[str, Any]  # of all layers and overrides
    values: dict[str, Any]  # the same without the fields that the schema does not know
    recipe: Recipe | None
    unread: list[str]  # mistakes without a field: repeated keys of a file, then overrides that can't be applied
    mistakes: list[Mistake]
    notes: list[str]  # about values that were changed

    def require(self, more: Sequence[Mistake] = ()) -> Recipe:
        """The recipe, or one RecipeError with the schema's mistakes and `more` that were found elsewhere."""
        lines, together = self.explain(more)
        if self.recipe is not None and not lines:
            return self.recipe
        name, verb = self.layers[-1].name, "has"
        in_files = any(layer.mistakes for layer in self.layers)
        if not in_files and all(self._is_overridden(path) for path, _ in (*self.mistakes, *more)):
            name, verb = f"The overrides of {name}", "have"  # nothing is wrong with the file
        raise RecipeError("\n".join([report_mistakes(name, lines, verb), *together]))

    def explain(self, more: Sequence[Mistake] = ()) -> tuple[list[str], list[str]]:
        """A line for each mistake, and what to write in place of all Trainer arguments, where there are several."""
        mistakes = [*self.mistakes, *more]
        given = {path: _find_value(self.written, path) for path, _ in mistakes if _is_trainer_argument(path)}
        arguments = {str(path[-1]): value for path, value in given.items()}
        lines, together = [*self.unread], []
        for path, sentence in mistakes:
            if path in given:
                in_file = not self._is_overridden(path)
                sentence = explain_argument(str(path[-1]), arguments, self.values, in_file=in_file)
            lines.append(self._locate(Mistake(path, sentence)))
        for in_file in (False, True):
            names = [str(path[-1]) for path in given if self._is_overridden(path) != in_file]
            changes = merge_changes(names, arguments, self.values)
            if len(names) > 1 and changes:
                together.append(format_together(changes, in_file=in_file))
        return lines, together

    def _locate(self, mistake: Mistake) -> str:
        """The mistake as a line; where it does not come from the recipe's own file, it says from where."""
        path, line = mistake.path, str(mistake)
        if self._is_overridden(path):
            return line
        for layer in reversed(self.layers):
            if _has(layer.values, path):
                return line if layer is self.layers[-1] else f"{line} (in {layer.name})"
        return line

    def _is_overridden(self, path: Sequence[OverrideKey]) -> bool:
        return any(f"{join_path(path)}.".startswith(f"{dotted}.") for dotted in overridden_paths(self.overrides))


def load_recipe(where: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """The recipe at `where` with `overrides` such as 'train.steps=100' or '~eval.early_stopping' applied.

    A plain word is first looked up in the library; write ./demo for a file or run directory of that name.
    """
    return read_recipe(where, overrides).require()


def read_recipe(where: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RecipeReading:
    """As `load_recipe`, but the schema's mistakes are returned, so that others can be reported with them."""
    layers = _load_layers(_plain(where) if isinstance(where, Recipe) else where)
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, _with_resolved_paths(layer))
    values, wrong_overrides = apply_overrides(merged, overrides)
    # Stated is what the user's own file or an override says, not an extended file or a library recipe.
    in_file = layers[-1].folder != LIBRARY and _has(layers[-1].values, WARMUP.split("."))
    is_stated = in_file or any(f"{WARMUP}.".startswith(f"{dotted}.") for dotted in overridden_paths(overrides))
    values, note = fit_warmup(values, is_stated=is_stated)
    recipe, mistakes = validate_part(Recipe, values)
    known = copy.deepcopy(values)
    for path, _ in mistakes:
        if annotation_at(path) is None and _has(known, path):
            del _find_value(known, path[:-1])[path[-1]]
    if known != values:  # an unknown field hides the mistakes of its part as a whole
        mistakes += [mistake for mistake in validate_part(Recipe, known)[1] if mistake not in mistakes]
    unread = [f"{layer.name}: {mistake}" for layer in layers for mistake in layer.mistakes] + wrong_overrides
    notes = [] if note is None else [note]
    return RecipeReading(layers, overrides, values, known, recipe, unread, mistakes, notes)


def dump_recipe(recipe: Recipe) -> str:
    """YAML with every default filled in; `load_recipe` of it gives an equal recipe."""
    return write_yaml(_plain(recipe))


def to_json_schema() -> dict[str, Any]:
    """JSON schema of a recipe file, for editors. Nothing is required, because `extends` may supply it."""
    schema = Recipe.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)
    extends = {"type": "string", "description": "Library name or file of the recipe that this one changes."}
    return schema | {"properties": {"extends": extends, **schema["properties"]}}


def _load_layers(where: str | Path | Mapping[str, Any]) -> list[_Layer]:
    chain: list[Path] = []
    folder = Path()
    layers: list[_Layer] = []
    while True:
        if isinstance(where, Mapping):
            layer = _Layer("the recipe", None, dict(where), [])
        else:
            found = resolve(where, RECIPES, folder=folder)
            file = found.path  # of the library: not resolved, because it is compared with LIBRARY
            if file.parent != LIBRARY:
                file = (file / RUN_RECIPE if found.kind == "run" else file).resolve()
            if file in chain:
                circle = " -> ".join(each.name for each in [*chain[chain.index(file) :], file])
                raise RecipeError(circle, "A recipe cannot extend itself", "Remove extends: from one of them")
            chain.append(file)
            layer = _read_file(file)
        parent = layer.values.pop("extends", None)
        layers.insert(0, layer)
        if parent is None:
            return layers
        if not isinstance(parent, str):
            rule = "It takes one library name or file"
            raise RecipeError(f"{layer.name}: extends is {parent!r}", rule, "Write extends: base.yaml")
        where, folder = parent, layer.folder or Path()


def _read_file(file: Path) -> _Layer:
    try:
        values, mistakes = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{file}: {error.strerror}", "It cannot be read", "Check its permissions") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            text = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        rule = "A recipe is YAML text in UTF-8"
        raise RecipeError(f"{file}: {text}", rule, "Correct the file there") from error
    if not isinstance(values, dict):
        what = "empty" if values is None else f"a {type(values).__name__}"
        rule = "A recipe is a mapping of fields"
        raise RecipeError(f"{file} is {what}", rule, "Start with 'seqfit cp demo mine.yaml' and change that")
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return _Layer(file.stem if file.parent == LIBRARY else str(shown), file.parent, values, mistakes)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _with_resolved_paths(layer: _Layer) -> dict[str, Any]:
    """The layer's values, with paths that exist relative to its file made absolute."""
    if layer.folder is None:
        return layer.values
    places = {"model": ("path", "tokenizer"), "data": ("path", "map"), "eval": ("metrics",)}
    resolved = {
        name: _resolve_keys(layer.values[name], keys, layer.folder)
        for name, keys in places.items()
        if name in layer.values
    }
    return layer.values | resolved


def _resolve_keys(part: Any, keys: Sequence[str], folder: Path) -> Any:
    if isinstance(part, list):
        return [_resolve_keys(item, keys, folder) for item in part]
    if not isinstance(part, dict):
        return part
    paths = {key: folder / part[key] for key in keys if isinstance(part.get(key), str) and part[key]}
    found = {key: str(path.resolve()) for key, path in paths.items() if path.exists()}
    return part | found | {key: _resolve_functions(part[key], folder) for key in ("map", "metrics") if part.get(key)}


def _resolve_functions(given: Any, folder: Path) -> Any:
    if isinstance(given, list):
        return [_resolve_functions(one, folder) for one in given]
    return anchor_function(given, folder) if isinstance(given, str) else given


def _is_trainer_argument(path: Sequence[OverrideKey]) -> bool:
    """Whether an unknown field is an argument of the Trainer; no field of a strategy has the name of one."""
    is_unknown = bool(path) and (path[0] == "strategy" or annotation_at(path) is None)
    return is_unknown and find_argument(path[-1]) is not None


def _find_value(values: Any, path: Sequence[OverrideKey]) -> Any:
    for key in path:
        values = values[key]
    return values


def _has(values: Any, path: Sequence[OverrideKey]) -> bool:
    try:
        _find_value(values, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _plain(value: Any) -> Any:
    """Parts as mappings. A None is dropped only where the default is None too: clip_norm: null must stay."""
    if isinstance(value, RecipePart):
        fields = type(value).model_fields
        given = {name: getattr(value, name) for name in fields}
        return {name: _plain(v) for name, v in given.items() if v is not None or fields[name].default is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
