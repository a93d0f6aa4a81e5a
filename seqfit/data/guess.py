"""A recipe from a data file, a task and a model: what `seqfit train --data my.csv` does without a recipe.

In: where the data is, the task (or None) and the model. Out: `Guess`, the recipe as YAML would hold it and a note for
everything that was guessed; what the user gave is neither guessed nor noted. The one idea: a column is found by its
name, and where names do not help by its content; what is still open is an error that lists the columns and the words
to say it.

    columns id, pregunta, contexto, respuesta; task qa
    -> task: {source: "question: {pregunta}[[ context: {contexto}]]", target: "{respuesta}", language: es}
       notes: "question: column 'pregunta'", "context: column 'contexto'", "answer: column 'respuesta'", ...
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from seqfit.data.columns import LANGUAGES, find_by_name, find_languages, guess_language, profile_columns
from seqfit.data.roles import Templates, find_templates
from seqfit.data.rows import Row
from seqfit.data.tables import Table, find_tables
from seqfit.data.text_files import read_lines, require_file
from seqfit.errors import RecipeError, complain, did_you_mean
from seqfit.recipe.load import explain_mistakes
from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.schema import SourceRecipe, TaskRecipe
from seqfit.tasks.rules import fold_word
from seqfit.tasks.template import choose_template, column_text, columns_of, render_template

TASKS: tuple[str, ...] = get_args(TaskRecipe.model_fields["name"].annotation)
_SAMPLE_ROWS = 500
_MOST_LABELS = 1000
_CLASS_FILES = ("classes.txt", "labels.txt")
_ENCODERS = ("bert", "electra", "mpnet", "ernie")  # a BERT-type model has one of these in its model_type or name


@dataclass(frozen=True)
class Guess:
    """A recipe as plain values, and what was guessed on the way."""

    recipe: dict[str, Any]
    notes: list[str]


def guess_recipe(data: str, task: str | None, model: str, overrides: Sequence[str] = ()) -> Guess:
    """The recipe for some data. `overrides` are the user's own: what they say need not be guessed."""
    notes: list[str] = []
    values, mistakes = apply_overrides({"data": _locate(data)}, overrides)
    if mistakes:
        raise RecipeError(" ".join(mistakes))
    given = {part: _mapping(values.get(part)) for part in ("model", "task", "train")}
    task = given["task"].get("name", task)
    _check_task(task)
    source = _read_source(values["data"])
    tables = find_tables(source)
    notes += [note for table in tables.values() for note in table.notes]
    samples = [list(itertools.islice(table.read(), _SAMPLE_ROWS)) for table in tables.values()]
    task = task or _guess_task(samples[0], data, notes)
    kind = given["model"].get("kind") or _guess_kind(model, task, notes)
    guessed = {"name": task} | _guess_templates(task, kind, samples, data, given["task"], notes)
    final = guessed | given["task"]
    if task == "classify" and "labels" not in final:
        guessed["labels"] = _find_labels(final["target"], tables, source, notes)
    if "language" not in final:
        guessed["language"] = _guess_language(final, samples[0], notes)
    recipe = {
        "description": f"{task} on {source.title}; columns guessed.",
        "model": ({"path": model} if Path(model).is_dir() else {"name": model}) | {"kind": kind},
        "task": guessed,
        "data": source.model_dump(exclude_defaults=True, mode="json"),
        "train": _default_training(kind, given["train"], notes),
    }
    return Guess(recipe, notes)


def _mapping(value: Any) -> dict[str, Any]:
    """A part as the user gave it; one that is no mapping is refused when the recipe is loaded."""
    return value if isinstance(value, dict) else {}


def _check_task(task: str | None) -> None:
    if task is not None and task not in TASKS:
        raise RecipeError(
            complain(f"--task is '{task}'", f"The tasks are {', '.join(TASKS)}", "Give one of them")
            + did_you_mean(task, TASKS)
        )


# ---- the data ----


def _locate(data: str) -> dict[str, Any]:
    """A path if there is one or if it looks like one, else a Hub name."""
    looks_like_path = data.startswith((".", "/", "~")) or bool(Path(data).suffix) or data.count("/") != 1
    if Path(data).expanduser().exists() or looks_like_path:
        return {"path": str(require_file(Path(data).expanduser(), "--data"))}
    return {"hub": data}


def _read_source(values: Mapping[str, Any]) -> SourceRecipe:
    try:
        return SourceRecipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(explain_mistakes(error, SourceRecipe, "data", values)) from error


# ---- the task ----


def _guess_task(rows: list[Row], data: str, notes: list[str]) -> str:
    columns = profile_columns(rows)
    answer = find_by_name("answer", columns)
    if answer is not None and find_by_name("question", columns):
        worked_out = sum("####" in column_text(answer.path, row) for row in rows)
        task = "math" if worked_out > len(rows) / 2 else "qa"
    elif find_by_name("summary", columns):
        task = "summarize"
    elif len(find_languages(columns)) > 1:
        task = "translate"
    elif any(column.has_few_values for column in columns):
        task = "classify"
    else:
        names = ", ".join(column.path for column in columns)
        change = f"Add --task with one of {', '.join(TASKS)}"
        raise RecipeError(complain(f"{data} has the columns {names}", "They do not say which task it is", change))
    notes.append(f"task: {task}")
    return task


def _guess_templates(
    task: str, kind: str, samples: list[list[Row]], data: str, given: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Source with its prefix and target, as far as they are not given.

    One template where all files have the same columns, else one per kind of file.
    """
    if "source" in given and "target" in given:
        return {}
    found: list[Templates] = []
    for rows in samples:
        templates = find_templates(task, profile_columns(rows), data)
        if templates not in found:
            found.append(templates)
            used = {path for side in ("source", "target") if side not in given for path in columns_of(templates[side])}
            notes += [f"{role}: column '{path}'" for role, path in templates.roles.items() if path in used]
    guessed: dict[str, Any] = {}
    for side in ("source", "target"):
        if side not in given:
            different = list(dict.fromkeys(templates[side] for templates in found))
            guessed[side] = different if len(different) > 1 else different[0]
    if "source" in guessed:
        # A prefix tells a text-to-text model what to do; a classifier's head knows.
        guessed["prefix"] = given.get("prefix", "" if kind == "classifier" else found[0].prefix)
        notes.append(f"source: '{guessed['prefix']}{found[0].source}'")
    return guessed


def _find_labels(
    target: str | list[str], tables: Mapping[str, Table], source: SourceRecipe, notes: list[str]
) -> list[str] | dict[str, list[str]]:
    """Every value of the label column; files may be sorted by it, so all rows are read."""
    values: set[str] = set()
    for table in tables.values():
        for row in table.read():
            values.add(render_template(choose_template(target, row), row).strip())
            if len(values) > _MOST_LABELS:
                raise RecipeError(
                    complain(
                        f"{source.title}: {target} has more than {_MOST_LABELS} different values",
                        "Classes are few",
                        "Name the label column: task.target='{column}', or choose another --task",
                    )
                )
    spellings = _group_spellings(values - {""})
    labels = list(spellings)
    words = _class_words(source, labels)
    if words:
        notes.append("labels: " + ", ".join(f"{label} ({word})" for word, label in zip(words, labels, strict=True)))
        return {word: spellings[label] for word, label in zip(words, labels, strict=True)}
    shown = {label: ", ".join(other for other in same if other != label) for label, same in spellings.items()}
    notes.append(
        "labels: " + ", ".join(f"{label} (also {others})" if others else label for label, others in shown.items())
    )
    return spellings if any(shown.values()) else labels


def _group_spellings(values: set[str]) -> dict[str, list[str]]:
    """{'Yes', 'yes', 'no'} -> {'no': ['no'], 'yes': ['Yes', 'yes']}: a task takes values that differ in case as one."""
    groups: dict[str, list[str]] = {}
    for value in sorted(values, key=lambda value: (not value.isdecimal(), value.zfill(9))):
        groups.setdefault(fold_word(value), []).append(value)
    return {max(same): same for same in groups.values()}  # small letters come last, and are the plainest word


def _class_words(source: SourceRecipe, labels: list[str]) -> list[str]:
    """Names for numbered classes, if a file beside the data lists as many."""
    path = Path(source.path or "").expanduser()
    folder = path if path.is_dir() else path.parent
    if not all(label.isdecimal() for label in labels):
        return []
    for name in _CLASS_FILES:
        if (folder / name).is_file():
            words = [line.strip() for line in read_lines(folder / name) if line.strip()]
            if len(words) == len(labels):
                return words
    return []


def _guess_language(values: Mapping[str, Any], rows: list[Row], notes: list[str]) -> str:
    """Of the answers: what a translation's column is called, else by the small words of source and target."""
    sides = [values.get("target", []), values.get("source", [])]
    paths = [path for side in sides for one in ([side] if isinstance(side, str) else side) for path in columns_of(one)]
    named = {column.path: LANGUAGES[language][0] for language, column in find_languages(profile_columns(rows))}
    if paths and paths[0] in named:
        language = named[paths[0]]
    else:
        language = guess_language([column_text(path, row) for path in paths for row in rows])
    notes.append(f"language: {language}")
    return language


# ---- the model ----


def _guess_kind(model: str, task: str, notes: list[str]) -> str:
    config = Path(model).expanduser() / "config.json"
    if config.is_file():
        values = json.loads(config.read_text("utf-8"))
        is_encoder = not values.get("is_encoder_decoder") and _has_encoder_name(str(values.get("model_type", "")))
        reason = f"config.json says {values.get('model_type')}"
    else:
        is_encoder, reason = _has_encoder_name(model), "by its name"
    kind = "classifier" if is_encoder else "text-to-text"
    if is_encoder and task != "classify":
        raise RecipeError(
            complain(
                f"--model {model} is a BERT-type encoder ({reason}), and the task is {task}",
                "An encoder can only classify",
                "Give a text-to-text model such as --model google/flan-t5-small, or --task classify",
            )
        )
    notes.append(f"model: {kind} ({reason})")
    return kind


def _has_encoder_name(name: str) -> bool:
    return any(word in name.lower() for word in _ENCODERS)


def _default_training(kind: str, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """AdamW's usual 5e-5 is right for BERT and too low for T5, which wants 1e-4 to 3e-4."""
    guessed: dict[str, Any] = {}
    if "learning_rate" not in given:
        guessed["learning_rate"] = 5e-5 if kind == "classifier" else 3e-4
    if not {"epochs", "steps"} & set(given):
        guessed["epochs"] = 3
    if not {"batch_examples", "batch_tokens"} & set(given):
        guessed["batch_examples"] = 32
    if guessed:
        notes.append("training: " + ", ".join(f"{name} {value:g}" for name, value in guessed.items()))
    return guessed
