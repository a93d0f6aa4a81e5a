"""A recipe from a data file, a task and a model: what `seqfit train --data my.csv` does without a recipe.

In: where the data is, the task (or None) and the model (or None). Out: `Guess`, the recipe as YAML would hold it, and a
note for everything that was guessed; what the user gave is not guessed. The one idea: a certain guess is one note, and
an uncertain one stops with the two best readings, each on a real row with the options to paste (`Unsure`). No column
that could be part of the input is left out silently.

    columns id, pregunta, contexto, respuesta; task qa
    -> task: {source: "question: {pregunta}[[ context: {contexto}]]", target: "{respuesta}", language: es}
       notes: "qa: 'question: {pregunta}[[ context: {contexto}]]' -> '{respuesta}'", "unused columns: id (ids)", ...
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.data import BadRow, DataTable, find_tables, name_words
from seqfit.errors import DataError, RecipeError, did_you_mean
from seqfit.inspection import record_kinds
from seqfit.inspection.column_names import find_languages
from seqfit.inspection.columns import NAMES_OF_SPLITS, profile_columns
from seqfit.inspection.second_look import find_deciding_column, find_labels, find_suspicions
from seqfit.inspection.task_guess import TASKS, TaskGuess, Unsure
from seqfit.inspection.text_language import find_language
from seqfit.inspection.text_readings import Hints
from seqfit.model_configs import find_known_model
from seqfit.paths import require_file
from seqfit.recipe import SPLITS, SourceRecipe, TaskRecipe, apply_overrides, report_mistakes, validate_part
from seqfit.system import quote
from seqfit.tasks import TemplateRow, column_text, columns_of

ALIASES = {
    **dict.fromkeys(("question-answering", "squad", "faq", "reading-comprehension"), "qa"),
    **dict.fromkeys(("summarization", "summarisation", "summary"), "summarize"),
    **dict.fromkeys(("translation", "mt"), "translate"),
    **dict.fromkeys(("classification", "text-classification", "sentiment", "nli", "intent", "topic"), "classify"),
    **dict.fromkeys(("chat", "dialogue", "dialog", "instruct", "instructions"), "generate"),
    **dict.fromkeys(("text2text", "text-to-text", "grammar", "gec", "simplification", "simplify"), "generate"),
    **dict.fromkeys(("paraphrase", "data-to-text", "code"), "generate"),
    **dict.fromkeys(("sts", "similarity", "score", "scores", "regress"), "regression"),
    **dict.fromkeys(("multi-label", "tagging", "multilabel-classification"), "multilabel"),
    **dict.fromkeys(("choice", "multiple_choice", "mcq", "multiplechoice"), "multiple-choice"),
}
_SAMPLE_ROWS = 1000
_READ_ROWS = 20_000  # the sample is spread over so many, because files are often sorted by label
_READ_CHARS = 50_000_000
_MOST_FILES = 100
_LINES_BYTES = 20_000_000
_ENCODERS = ("bert", "electra", "mpnet", "ernie")  # a BERT-type model has one of these in its model_type or name


@dataclass(frozen=True)
class Guess:
    recipe: dict[str, Any]  # plain values
    notes: list[str]


def guess_recipe(data: str, task: str | None, model: str | None, overrides: Sequence[str] = ()) -> Guess:
    """The recipe for some data. What the user's `overrides` say is not guessed.

    Without a model the recipe names none, and the task is for a text-to-text model.
    """
    notes: list[str] = []
    values, mistakes = apply_overrides({"data": _locate(data)}, overrides)
    if mistakes:
        raise RecipeError(" ".join(mistakes))
    # A part that is not a mapping is reported when the recipe is loaded.
    parts = {part: values.get(part) for part in ("model", "task", "train")}
    given = {part: value if isinstance(value, dict) else {} for part, value in parts.items()}
    wanted = _check_task(given["task"].get("name", task))
    source, wrong = validate_part(SourceRecipe, values["data"], within=("data",))
    if source is None:
        raise RecipeError(report_mistakes("data", wrong))
    stated = [given["task"][side] for side in ("source", "target") if isinstance(given["task"].get(side), str)]
    named = [path for template in stated for path in columns_of(template, required_only=True)]
    kind, reason = _guess_kind(model)
    kind = given["model"].get("kind", kind)
    if model is not None and wanted is not None and "kind" not in given["model"]:
        _check_kind(model, kind, reason, wanted)  # before a question about a task that this model can't do
    tables = find_tables(source, named)
    notes += dict.fromkeys(note for table in tables.values() for note in table.notes)
    samples = {name: sample_rows(table) for name, table in tables.items()}
    first = next(iter(samples))
    _require_rows(samples[first], tables[first])
    unfolding = record_kinds.find_unfolding(samples[first], source, wanted, given["task"])
    if unfolding:
        source = source.model_copy(update=unfolding)
        notes += [f"data.{name}: each record of '{path}' is a row" for name, path in unfolding.items()]
        tables = find_tables(source, named)
        samples = {name: sample_rows(table) for name, table in tables.items()}
        _require_rows(samples[first], tables[first])
    lines = [row for row in itertools.islice(tables[first].read(), record_kinds.BLOCK_SAMPLE) if row]
    record_kinds.refuse_blocks(lines, source.title, given["task"])
    record_kinds.refuse_token_labels(samples[first], source.title, given["task"])
    record_kinds.refuse_turns_in_rows(samples[first], source.title, wanted, given["task"])
    record_kinds.refuse_pairs_in_rows(samples[first], source.title, wanted, given["task"])
    if tables.keys().isdisjoint(SPLITS) and (column := _find_split_column(samples[first])) is not None:
        source = source.model_copy(update={"split_column": column})
        tables = find_tables(source, named)
        notes.append(
            f"splits: from the column '{column}': {', '.join(tables)} (data.split_column=null splits at random instead)"
        )
    hints = Hints(_hint(source), model or "", data, has_head=kind == "classifier")
    try:
        task_values = TaskGuess(wanted, given["task"], samples, hints, unfolding, notes).guess()
    except Unsure:
        raise
    except RecipeError as error:
        raise RecipeError(f"{error}{_mention_files(source, tables)}") from error
    final = task_values | given["task"]
    if not unfolding and (records := record_kinds.find_used_records(final, samples[first])) is not None:
        return guess_recipe(data, task, model, [*overrides, f"data.each={records}"])
    if "source" not in given["task"] and (column := find_deciding_column(final, tables)) is not None:
        raise _open_source(hints.title, final, column)
    if model is not None and "kind" not in given["model"]:
        _check_kind(model, kind, reason, final["name"])
        notes.append(f"model: {kind} ({reason})")
    if final["name"] in ("classify", "multilabel") and "labels" not in final:
        task_values["labels"] = find_labels(final, tables, source, notes)
    notes += find_suspicions(final, samples[first])
    if "language" not in final and (language := _find_language(final, samples[first])) is not None:
        task_values["language"] = language
        notes.append(f"language: {language}")
    recipe = {
        "description": f"{final['name']} on {source.title}; columns guessed.",
        "model": ({} if model is None else {"path" if Path(model).is_dir() else "name": model}) | {"kind": kind},
        "task": task_values,
        "data": source.model_dump(exclude_defaults=True, mode="json"),
        "train": _default_training(kind, given["train"], notes if model is not None else []),
    }
    return Guess(recipe, notes)


def _require_rows(rows: Sequence[TemplateRow], table: DataTable) -> None:
    """Raise the reason if no row can be read, instead of guessing from no columns."""
    if rows:
        return
    bad = next((row for row in table.read() if isinstance(row, BadRow)), None)
    if bad is not None:
        raise DataError(
            f"{table.name}: none of the first rows can be read ({bad.cause}; {bad.detail})",
            "Guessing a recipe needs rows",
            "Correct data.each, data.turns, data.format or data.header, or remove them so that they are guessed",
        )


def _find_split_column(rows: Sequence[TemplateRow]) -> str | None:
    found = [c for c in profile_columns(rows) if c.not_text == NAMES_OF_SPLITS and c.filled_share > 0.99]
    has_train = len(found) == 1 and "train" in map(name_words.split_of, found[0].values)
    return found[0].path if has_train else None


def _mention_files(source: SourceRecipe, tables: Mapping[str, DataTable]) -> str:
    """If labels are missing: a file next to the data that has as many lines as there are rows."""
    if source.path is None:
        return ""
    path = Path(source.path).expanduser()
    folder = path if path.is_dir() else path.parent
    used = {file.resolve() for table in tables.values() for file in table.files}
    for table in tables.values():
        rows = sum(1 for _ in itertools.islice(table.read(), _READ_ROWS))
        for file in sorted(folder.iterdir())[:_MOST_FILES] if 1 < rows < _READ_ROWS else []:
            if file.resolve() in used or not file.is_file() or file.stat().st_size > _LINES_BYTES:
                continue
            if file.read_bytes().rstrip(b"\n").count(b"\n") + 1 == rows:
                return (
                    f" {file.name} has as many lines ({rows:,}) as the data has rows: if it holds the labels or "
                    "answers, add them to the data as a column."
                )
    return ""


def _open_source(data: str, task: Mapping[str, Any], column: str) -> Unsure:
    source, target = task["source"], task["target"]
    with_it, without_it = quote(f"task.source={source} {{{column}}}"), quote(f"task.source={source}")
    given_target = quote(f"task.target={target}")
    return Unsure(
        f"{data} is ambiguous: rows with the same {source} have different {target}, depending on '{column}'. "
        "The options for each reading:\n"
        f"  1. with '{column}' in the source: {with_it} {given_target}\n"
        f"  2. without it: {without_it} {given_target}\n"
        "Add the options of the reading you want."
    )


def sample_rows(table: DataTable) -> list[TemplateRow]:
    """Rows spread evenly over the beginning of a table, without those that can't be read."""
    kept: list[TemplateRow] = []
    stride, chars = 1, 0
    for number, row in enumerate(itertools.islice(table.read(), _READ_ROWS)):
        if isinstance(row, BadRow) or number % stride or not any(value not in (None, "") for value in row.values()):
            continue
        kept.append(row)
        chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if chars > _READ_CHARS:
            break
        if len(kept) > 2 * _SAMPLE_ROWS:
            kept, stride = kept[::2], 2 * stride
    return kept[:: max(1, len(kept) // _SAMPLE_ROWS)]


def _check_task(task: str | None) -> str | None:
    if task is None or task in TASKS:
        return task
    if task.lower() in ALIASES:
        return ALIASES[task.lower()]
    raise RecipeError(
        f"--task is '{task}'",
        f"The tasks are {', '.join(TASKS)}",
        "Use one of them, as in --task qa",
        hint=did_you_mean(task, [*TASKS, *ALIASES]),
    )


def _hint(source: SourceRecipe) -> str:
    """The data's name and its folder's: nl2bash/all, train.en-de.tsv."""
    if source.path is None:
        return f"{source.hub} {source.hub_config or ''}"
    path = Path(source.path)
    return f"{path.parent.name}/{path.name}"


def guess_for_model(model: str, task: str | None) -> dict[str, Any]:
    """A recipe to plan without data: the rows are never read."""
    kind, reason = _guess_kind(model)
    name = _check_task(task) or ("classify" if kind == "classifier" else "generate")
    _check_kind(model, kind, reason, name)
    labels = {"labels": ["0", "1"]} if name in ("classify", "multilabel") else {}
    return {
        "model": {"path" if Path(model).is_dir() else "name": model, "kind": kind},
        "task": {"name": name, "source": "{source}", "target": "{target}", **labels},
        "data": {"path": "no data", "label": "no data"},
    }


def _locate(data: str) -> dict[str, Any]:
    """A path if it exists or looks like one, else a Hub name."""
    looks_like_path = data.startswith((".", "/", "~")) or bool(Path(data).suffix) or data.count("/") != 1
    if Path(data).expanduser().exists() or looks_like_path:
        return {"path": str(require_file(Path(data).expanduser(), "--data"))}
    return {"hub": data}


def _find_language(values: Mapping[str, Any], rows: list[TemplateRow]) -> str | None:
    """The target's language: from a column name, else from script and common words; None if it is not certain."""
    sides = [values.get("target", []), values.get("source", [])]
    targets, sources = (
        [path for one in ([side] if isinstance(side, str) else side) for path in columns_of(one)] for side in sides
    )
    named = find_languages(targets[:1])
    if named:
        return name_words.LANGUAGES[named[targets[0]]][0]
    paths = targets if values.get("name") in ("translate", "generate") else [*targets, *sources]
    return find_language([column_text(path, row) for path in paths for row in rows])


def _guess_kind(model: str | None) -> tuple[str, str]:
    config = Path(model or "").expanduser() / "config.json"
    name, reason, has_decoder = model or "", "by its name", False
    if not config.is_file() and (known := find_known_model(name)) is not None:
        return known.kind, f"its config says {known.config['model_type']}"
    if model is not None and config.is_file():
        values = json.loads(config.read_text("utf-8"))
        name, has_decoder = str(values.get("model_type", "")), bool(values.get("is_encoder_decoder"))
        reason = f"config.json says {values.get('model_type')}"
    is_encoder = not has_decoder and any(word in name.lower() for word in _ENCODERS)
    return "classifier" if is_encoder else "text-to-text", reason


def _check_kind(model: str, kind: str, reason: str, task: str) -> None:
    if kind == "classifier" and task not in TaskRecipe.HEAD_TASKS:
        raise RecipeError(
            f"--model {model} is a BERT-type encoder ({reason}), and the task is {task}",
            f"The tasks of an encoder are {', '.join(TaskRecipe.HEAD_TASKS)}",
            "Choose a text-to-text model, such as --model google/flan-t5-small, or another --task",
        )


def _default_training(kind: str, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """AdamW's usual 5e-5 is right for BERT and too low for T5, which needs 1e-4 to 3e-4."""
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
