"""A recipe from a data file, a task and a model: what `seqfit train --data my.csv` does without a recipe.

In: where the data is, the task (or None) and the model (or None). Out: `Guess`, the recipe as YAML would hold it and a
line for everything that was guessed; what the user gave is neither guessed nor noted. The one idea: what is sure is
said in one line, and what is not sure stops with the two best readings, each on a real row with the options to paste
(`Unsure`). Nothing that looks like a part of the input is left out without a word.

    columns id, pregunta, contexto, respuesta; task qa
    -> task: {source: "question: {pregunta}[[ context: {contexto}]]", target: "{respuesta}", language: es}
       notes: "qa: 'question: {pregunta}[[ context: {contexto}]]' -> '{respuesta}'", "left out: id (ids)", ...
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from seqfit.data.column_names import LANGUAGES, find_languages, score_role
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.tables import ALL, DataTable, find_tables, split_of
from seqfit.data.text_files import require_file
from seqfit.errors import DataError, RecipeError, SeqfitError, did_you_mean
from seqfit.inspection.columns import NAMES_OF_SPLITS, ColumnProfile, profile_columns
from seqfit.inspection.label_names import find_labels
from seqfit.inspection.label_readings import (
    LabelKind,
    find_choice_base,
    find_label_kind,
    find_list_kind,
    find_written_lists,
)
from seqfit.inspection.reading import TITLES
from seqfit.inspection.record_kinds import (
    BLOCK_SAMPLE,
    find_unfolding,
    find_used_records,
    refuse_blocks,
    refuse_pairs_in_rows,
    refuse_token_labels,
    refuse_turns_in_rows,
)
from seqfit.inspection.roles import FoundReading, Hints, Reading, find_reading, find_task, list_columns
from seqfit.inspection.second_look import find_deciding_column, find_suspicions
from seqfit.inspection.text_language import find_language
from seqfit.recipe.load import describe_mistakes
from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.schema import HEAD_TASKS, SourceRecipe, TaskRecipe
from seqfit.system import quote
from seqfit.tasks.template import (
    TEXT_KEYS,
    column_text,
    columns_of,
    has_columns,
    render_template,
    turn_keys,
)

TASKS: tuple[str, ...] = get_args(TaskRecipe.model_fields["name"].annotation)
ALIASES = {
    **dict.fromkeys(("question-answering", "squad", "faq", "reading-comprehension"), "qa"),
    **dict.fromkeys(("summarization", "summarisation", "summary"), "summarize"),
    **dict.fromkeys(("translation", "mt"), "translate"),
    **dict.fromkeys(("classification", "text-classification", "sentiment", "nli", "intent", "topic"), "classify"),
    **dict.fromkeys(
        ("chat", "dialogue", "dialog", "instruct", "instructions", "text2text", "text-to-text"), "generate"
    ),
    **dict.fromkeys(("grammar", "gec", "simplification", "simplify", "paraphrase", "data-to-text", "code"), "generate"),
    **dict.fromkeys(("sts", "similarity", "score", "scores", "regress"), "regression"),
    **dict.fromkeys(("multi-label", "tagging", "multilabel-classification"), "multilabel"),
    **dict.fromkeys(("choice", "multiple_choice", "mcq", "multiplechoice"), "multiple-choice"),
}
_SAMPLE_ROWS = 1000
_LOOKED_AT_ROWS = 20_000  # the sample is spread over so many: files are often sorted by their label
_LOOKED_AT_CHARS = 50_000_000
_SHOWN_CHARS = 60
_FILES_LOOKED_AT = 100
_LINES_BYTES = 20_000_000
_ENCODERS = ("bert", "electra", "mpnet", "ernie")  # a BERT-type model has one of these in its model_type or name


class Unsure(RecipeError):
    """The data can be read in several ways; the message shows two of them and how to choose."""


@dataclass(frozen=True)
class Guess:
    """A recipe as plain values, and what was guessed on the way."""

    recipe: dict[str, Any]
    notes: list[str]


def guess_recipe(data: str, task: str | None, model: str | None, overrides: Sequence[str] = ()) -> Guess:
    """The recipe for some data. `overrides` are the user's own: what they say need not be guessed.

    Without a model the recipe names none, and the task is one for text-to-text.
    """
    notes: list[str] = []
    values, mistakes = apply_overrides({"data": _locate(data)}, overrides)
    if mistakes:
        raise RecipeError(" ".join(mistakes))
    given = {part: _mapping(values.get(part)) for part in ("model", "task", "train")}
    wanted = _check_task(given["task"].get("name", task))
    source = _read_source(values["data"])
    stated = [given["task"][side] for side in ("source", "target") if isinstance(given["task"].get(side), str)]
    named = [path for template in stated for path in columns_of(template, required_only=True)]
    kind, reason = _guess_kind(model)
    kind = given["model"].get("kind", kind)
    if model is not None and wanted is not None and "kind" not in given["model"]:
        _check_kind(model, kind, reason, wanted)  # before anything is asked that this model can't do
    tables = find_tables(source, named)
    notes += dict.fromkeys(note for table in tables.values() for note in table.notes)
    samples = {name: sample_rows(table) for name, table in tables.items()}
    first = next(iter(samples))
    _require_rows(samples[first], tables[first])
    unfolding = find_unfolding(samples[first], source, wanted, given["task"])
    if source.each or source.turns:
        unfolding = {}
    if unfolding:
        source = source.model_copy(update=unfolding)
        notes += [f"data.{name}: each record of '{path}' is a row" for name, path in unfolding.items()]
        tables = find_tables(source, named)
        samples = {name: sample_rows(table) for name, table in tables.items()}
        _require_rows(samples[first], tables[first])
    refuse_blocks([r for r in itertools.islice(tables[first].read(), BLOCK_SAMPLE) if r], source.title, given["task"])
    refuse_token_labels(samples[first], source.title, given["task"])
    refuse_turns_in_rows(samples[first], source.title, wanted, given["task"])
    refuse_pairs_in_rows(samples[first], source.title, wanted, given["task"])
    if list(tables) == [ALL] and (column := _find_split_column(samples[first])) is not None:
        source = source.model_copy(update={"split_column": column})
        tables = find_tables(source, named)
        notes.append(f"splits: by the column '{column}': {', '.join(tables)} (data.split_column=null: by chance)")
    hints = Hints(_hint(source), model or "", data, has_head=kind == "classifier")
    try:
        task_values = _Task(wanted, given["task"], samples, hints, unfolding, notes).guess()
    except Unsure:
        raise
    except RecipeError as error:
        raise RecipeError(f"{error}{_mention_files(source, tables)}") from error
    if not unfolding and (records := find_used_records(task_values | given["task"], samples[first])) is not None:
        words = [*overrides, f"data.each={records}"]
        return guess_recipe(data, task, model, words)
    final = task_values | given["task"]
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


def _require_rows(rows: Sequence[DataRow], table: DataTable) -> None:
    """Where no row can be read, why, instead of a guess from no columns."""
    if rows:
        return
    bad = next((row for row in table.read() if isinstance(row, BadRow)), None)
    if bad is not None:
        raise DataError(
            f"{table.name}: none of the first rows can be read ({bad.cause}; {bad.detail})",
            "A guess needs rows",
            "Correct data.each, data.turns, data.format or data.header, or remove them to have them guessed",
        )


def _find_split_column(rows: Sequence[DataRow]) -> str | None:
    """The column that says which split a row is in, where most of them are for training."""
    found = [c for c in profile_columns(rows) if c.not_text == NAMES_OF_SPLITS and c.filled_share > 0.99]
    return found[0].path if len(found) == 1 and any(split_of(value) == "train" for value in found[0].values) else None


def _mention_files(source: SourceRecipe, tables: Mapping[str, DataTable]) -> str:
    """Where labels are missing: a file next to the data that has as many lines as there are rows."""
    if source.path is None:
        return ""
    path = Path(source.path).expanduser()
    folder = path if path.is_dir() else path.parent
    used = {file.resolve() for table in tables.values() for file in table.files}
    for table in tables.values():
        rows = sum(1 for _ in itertools.islice(table.read(), _LOOKED_AT_ROWS))
        for file in sorted(folder.iterdir())[:_FILES_LOOKED_AT] if 1 < rows < _LOOKED_AT_ROWS else []:
            if file.resolve() in used or not file.is_file() or file.stat().st_size > _LINES_BYTES:
                continue
            if file.read_bytes().rstrip(b"\n").count(b"\n") + 1 == rows:
                return (
                    f" {file.name} has as many lines ({rows:,}) as there are rows: if it holds the labels or answers, "
                    "write them into the data as a column."
                )
    return ""


def _open_source(data: str, task: Mapping[str, Any], column: str) -> Unsure:
    source, target = task["source"], task["target"]
    options = [quote(f"task.source={source} {{{column}}}"), quote(f"task.source={source}")]
    return Unsure(
        f"{data} can be read in two ways: rows with the same {source} have different {target}, and '{column}' says "
        "which. The options that choose:\n"
        f"  1. with it:    {options[0]} {quote(f'task.target={target}')}\n"
        f"  2. without it: {options[1]} {quote(f'task.target={target}')}\n"
        "Add the options of the one that is meant."
    )


def sample_rows(table: DataTable) -> list[DataRow]:
    """Rows from all over the beginning of a table, without those that can't be read."""
    kept: list[DataRow] = []
    stride, chars = 1, 0
    for number, row in enumerate(itertools.islice(table.read(), _LOOKED_AT_ROWS)):
        if isinstance(row, BadRow) or number % stride:
            continue
        kept.append(row)
        chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if chars > _LOOKED_AT_CHARS:
            break
        if len(kept) > 2 * _SAMPLE_ROWS:
            kept, stride = kept[::2], 2 * stride
    return kept[:: max(1, len(kept) // _SAMPLE_ROWS)]


def _mapping(value: Any) -> dict[str, Any]:
    """A part as the user gave it; one that is no mapping is refused when the recipe is loaded."""
    return value if isinstance(value, dict) else {}


def _check_task(task: str | None) -> str | None:
    if task is None or task in TASKS:
        return task
    if task.lower() in ALIASES:
        return ALIASES[task.lower()]
    raise RecipeError(
        f"--task is '{task}'",
        f"The tasks are {', '.join(TASKS)}",
        "Give one of them",
        hint=did_you_mean(task, [*TASKS, *ALIASES]),
    )


def _hint(source: SourceRecipe) -> str:
    """The data's own name and its folder's: nl2bash/all, train.en-de.tsv."""
    if source.path is None:
        return f"{source.hub} {source.hub_config or ''}"
    path = Path(source.path)
    return f"{path.parent.name}/{path.name}"


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
        raise RecipeError(describe_mistakes(error, SourceRecipe, "data", values)) from error


# ---- the task ----


@dataclass
class _Task:
    """Finds the task's fields, as far as they are not given."""

    wanted: str | None
    given: Mapping[str, Any]
    samples: Mapping[str, list[DataRow]]
    hints: Hints
    unfolding: Mapping[str, str]
    notes: list[str]

    def guess(self) -> dict[str, Any]:
        """The fields of the task that are guessed."""
        rows = next(iter(self.samples.values()))
        columns = profile_columns(rows)
        if "source" in self.given and ("target" in self.given or "label_columns" in self.given):
            target = self.given.get("target", "")
            kind = LabelKind() if isinstance(target, list) else find_label_kind(self.wanted or "generate", target, rows)
            name = kind.task or self.wanted or self._only_task(columns)
            guessed = {"name": name} | {key: value for key, value in kind.more.items() if key not in self.given}
            self._note_kind(name, kind)
            return guessed
        found = self._find(columns)
        found = replace(
            found,
            best=_with_speakers(found.best, rows),
            other=None if found.other is None else _with_speakers(found.other, rows),
        )
        reading, kind = self._settle(found, rows)
        if not kind.more and reading.task in ("summarize", "translate", "generate"):
            kind = find_written_lists(reading.target, self.samples)
        if self.hints.has_head:
            reading = replace(reading, prefix="")  # a head knows what to do
        values = {"name": reading.task} | self._templates(reading, columns)
        values |= {name: value for name, value in {**reading.more, **kind.more}.items() if name not in self.given}
        if "source" not in self.given:
            values["prefix"] = self.given.get("prefix", reading.prefix)
        self._note_reading(reading, columns)
        self._note_kind(reading.task, kind)
        self._note_unanswered(reading, rows)
        return values

    def _find(self, columns: list[ColumnProfile]) -> FoundReading:
        if self.wanted is not None:
            return self._heed_given(find_reading(self.wanted, columns, self.hints))
        for task in find_task(columns, self.hints):
            try:
                found = find_reading(task, columns, self.hints)
            except RecipeError:
                continue  # a role of this task is open: another one may be meant
            if task == "qa" and self._ends_in_numbers(found.best):
                found = find_reading("math", columns, self.hints)
            if task == "summarize" and (rival := self._find_class_of(columns, found.best)) is not None:
                found = FoundReading(found.best, rival, "a headline could be written, or the texts classified")
            if task == "regression" and (rival := self._find_class(columns)) is not None:
                found = FoundReading(found.best, rival, "there is a score, and a class")
            return self._heed_given(found)
        raise self._no_task(columns)

    def _find_class_of(self, columns: list[ColumnProfile], summary: Reading) -> Reading | None:
        """The class of a text whose only summary is its title."""
        titled = {c.path for c in columns if c.name.last in TITLES or c.name.last == "headlines"}
        return self._find_class(columns) if set(columns_of(summary.target)) <= titled else None

    def _find_class(self, columns: list[ColumnProfile]) -> Reading | None:
        """The reading by a class, where a column of few values that are no scores is called a label."""
        named = [c for c in columns if c.has_few_values and not c.has_fractions and score_role(c.name, "label") >= 0.3]
        try:
            found = find_reading("classify", columns, self.hints).best if named else None
        except SeqfitError:
            return None
        return found if found is not None and set(columns_of(found.target)) & {c.path for c in named} else None

    def _heed_given(self, found: FoundReading) -> FoundReading:
        """Of two readings, the one whose given side names the columns that the user names."""
        for side in {"source", "target"} & set(self.given):
            stated = self.given[side]
            wanted = {path for one in ([stated] if isinstance(stated, str) else stated) for path in columns_of(one)}
            for reading in (found.best, found.other):
                if reading is not None and set(columns_of(getattr(reading, side))) == wanted:
                    return FoundReading(reading)
        return found

    def _ends_in_numbers(self, reading: Reading) -> bool:
        rows = next(iter(self.samples.values()))
        return sum("####" in render_template(reading.target, row) for row in rows) > len(rows) / 2

    def _only_task(self, columns: list[ColumnProfile]) -> str:
        tasks = find_task(columns, self.hints)
        if tasks:
            return tasks[0]
        raise self._no_task(columns)

    def _no_task(self, columns: list[ColumnProfile]) -> RecipeError:
        given = f"{self.hints.title} has the columns {list_columns(columns)}"
        change = f"Add --task with one of {', '.join(TASKS)}"
        return RecipeError(given, "They do not say which task it is", change)

    def _settle(self, found: FoundReading, rows: list[DataRow]) -> tuple[Reading, LabelKind]:
        """The reading that is meant, refined by what its target holds; what is in doubt is shown instead."""
        best, kind, doubt = _refine(found.best, rows)
        if found.doubt is not None and found.other is not None and not self._is_decided(found):
            raise self._unsure(found.doubt, [(best, kind), _refine(found.other, rows)[:2]], rows)
        if doubt is not None:
            other = (replace(best, task="regression", prefix="score: "), LabelKind("regression"))
            if best.task == "multiple-choice":
                other = (best, LabelKind(more={"choice_base": 1}))
            elif "references" in kind.more:
                other = (best, LabelKind())
            raise self._unsure(doubt, [(best, kind), other], rows)
        return best, kind

    def _is_decided(self, found: FoundReading) -> bool:
        """Whether the two readings differ only in the side that is given."""
        assert found.other is not None
        open_sides = [side for side in ("source", "target") if side not in self.given]
        return all(getattr(found.best, side) == getattr(found.other, side) for side in open_sides)

    def _unsure(self, doubt: str, readings: list[tuple[Reading, LabelKind]], rows: list[DataRow]) -> Unsure:
        shown = []
        for number, (reading, kind) in enumerate(readings, 1):
            row = next((row for row in rows if _is_shown(reading, row)), rows[0])
            source, target = (_shorten(_render(template, row)) for template in (reading.source, reading.target))
            choices = f", choices: {reading.roles['choices']}" if "choices" in reading.roles else ""
            shown.append(
                f"  {number}. {reading.task}: {reading.source} -> {reading.target}{choices}\n"
                f"       '{source}' -> '{target}'\n"
                f"       {self._options(reading, kind)}"
            )
        names = list_columns([replace(column, not_text=None) for column in profile_columns(rows)])
        return Unsure(
            f"{self.hints.title} can be read in several ways: {doubt}. The best two, on a row of it, each with the "
            "options that choose it:\n"
            + "\n".join(shown)
            + "\n"
            + f"Add the options of the one that is meant, or name other "
            f"columns in braces; it has {names}."
        )

    def _options(self, reading: Reading, kind: LabelKind) -> str:
        words = [] if reading.task == self.wanted else ["--task", reading.task]
        words += [quote(f"data.{name}={path}") for name, path in self.unfolding.items()]
        fields = {"source": reading.source, "target": reading.target or None, **reading.more, **kind.more}
        for name, value in fields.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                words.append(quote(f"task.{name}={text}"))
        return " ".join(words)

    def _templates(self, reading: Reading, columns: list[ColumnProfile]) -> dict[str, Any]:
        """One template where all files have the same columns, else one per kind of file."""
        sides = {side: [getattr(reading, side)] for side in ("source", "target") if side not in self.given}
        references = list(reading.more.get("references", []))
        for rows in itertools.islice(self.samples.values(), 1, None):
            if not rows or all(
                has_columns(template, rows[0]) for found in sides.values() for template in found if template
            ):
                continue
            own = find_reading(reading.task, profile_columns(rows), self.hints).best
            references += own.more.get("references", [])
            for side, found in sides.items():
                if getattr(own, side) not in found:
                    found.append(getattr(own, side))
        values: dict[str, Any] = {
            side: found[0] if len(found) == 1 else found for side, found in sides.items() if found != [""]
        }
        if references and len(sides.get("target", [])) > 1:
            values["references"] = list(dict.fromkeys([reading.target, *references]))
        return values

    def _note_reading(self, reading: Reading, columns: list[ColumnProfile]) -> None:
        prefix = self.given.get("prefix", reading.prefix)
        target = reading.target or ", ".join(reading.more.get("label_columns", []))
        choices = f", choices: {reading.roles['choices']}" if "choices" in reading.roles else ""
        self.notes.append(f"{reading.task}: '{prefix}{reading.source}' -> '{target}'{choices}")
        used = {path for template in (reading.source, reading.target) for path in columns_of(template)}
        used |= {path for value in reading.more.values() for path in _paths_in(value)}
        left = [_say_left_out(column, used) for column in columns if column.path not in used]
        left = [
            text
            for text in left
            if not any(text.startswith(f"{path}.") or path.startswith(f"{text}.") for path in used)
        ]
        first = next(iter(self.samples.values()))
        known = [*used, *(column.path for column in columns)]
        for name in dict.fromkeys(name for row in first for name in row):
            if not any(path == name or path.startswith(f"{name}.") for path in known):
                left.append(f"{name} (no text)")
        if left:
            more = f" and {len(left) - 12} more" if len(left) > 12 else ""
            self.notes.append(f"left out: {', '.join(left[:12])}{more}")

    def _note_kind(self, task: str, kind: LabelKind) -> None:
        if kind.why:
            self.notes.append(f"task: {task} ({kind.why})")

    def _note_unanswered(self, reading: Reading, rows: list[DataRow]) -> None:
        """Questions with an empty list of answers are learnt as such."""
        if reading.task == "qa" and len(paths := columns_of(reading.target)) == 1:
            empty = sum(column_text(paths[0], row) == "" for row in rows)
            if empty:
                self.notes.append(
                    f"answers: {empty} of {len(rows)} rows looked at have none: where that is an empty list, "
                    "task.no_answer ('unanswerable') is learnt"
                )


def _say_left_out(column: ColumnProfile, used: set[str]) -> str:
    whole = [path for path in column.within if path in used]
    reason = column.not_text or (f"part of {whole[0]}" if whole else "")
    return f"{column.path} ({reason})" if reason else column.path


def _with_speakers(reading: Reading, rows: Sequence[DataRow]) -> Reading:
    """The turns of a dialogue with who speaks: {dialogue} for {dialogue.text}."""
    source = reading.source
    for path in columns_of(source):
        outer, _, last = path.rpartition(".")
        values = [row[outer] for row in rows if row.get(outer)]
        if last in TEXT_KEYS and values and all(turn_keys(value) is not None for value in values):
            source = source.replace(f"{{{path}}}", f"{{{outer}}}")
    return replace(reading, source=source)


def _refine(reading: Reading, rows: list[DataRow]) -> tuple[Reading, LabelKind, str | None]:
    """What the target's values mean: scores, sets of labels, several annotators; and whether that is in doubt."""
    if reading.task == "multiple-choice":
        kind = find_choice_base(reading.target, reading.more["choices"], rows)
        return reading, kind, kind.doubt
    if reading.task in ("summarize", "translate", "generate"):
        kind = find_list_kind(reading.target, rows)
        return reading, kind, kind.doubt
    kind = find_label_kind(reading.task, reading.target, rows)
    if kind.task is not None and kind.task != reading.task:
        prefix = "score: " if kind.task == "regression" else reading.prefix
        reading = replace(reading, task=kind.task, prefix=prefix)
    return reading, kind, kind.doubt


def _is_shown(reading: Reading, row: DataRow) -> bool:
    paths = [path for template in (reading.source, reading.target) for path in columns_of(template)]
    return all(column_text(path, row).strip() for path in paths)


def _render(template: str, row: DataRow) -> str:
    try:
        return render_template(template, row)
    except RecipeError:
        return ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 2 * _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ... {text[-_SHOWN_CHARS:]}"


def _paths_in(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item
            if "{" in item:
                yield from columns_of(item)


def _find_language(values: Mapping[str, Any], rows: list[DataRow]) -> str | None:
    """Of the answers: what a translation's column is called, else by script and small words; None if it is not sure."""
    sides = [values.get("target", []), values.get("source", [])]
    per_side = [
        [path for one in ([side] if isinstance(side, str) else side) for path in columns_of(one)] for side in sides
    ]
    named = {
        path: LANGUAGES[language][0]
        for path, language in find_languages(path for side in per_side for path in side).items()
    }
    targets = per_side[0]
    if targets and targets[0] in named:
        return named[targets[0]]
    if values.get("name") in ("translate", "generate"):
        return find_language([column_text(path, row) for path in targets for row in rows])
    return find_language([column_text(path, row) for side in per_side for path in side for row in rows])


# ---- the model ----


def _guess_kind(model: str | None) -> tuple[str, str]:
    """classifier or text-to-text, and by what."""
    config = Path(model or "").expanduser() / "config.json"
    if model is not None and config.is_file():
        values = json.loads(config.read_text("utf-8"))
        is_encoder = not values.get("is_encoder_decoder") and _has_encoder_name(str(values.get("model_type", "")))
        reason = f"config.json says {values.get('model_type')}"
    else:
        is_encoder, reason = _has_encoder_name(model or ""), "by its name"
    return "classifier" if is_encoder else "text-to-text", reason


def _check_kind(model: str, kind: str, reason: str, task: str) -> None:
    if kind == "classifier" and task not in HEAD_TASKS:
        raise RecipeError(
            f"--model {model} is a BERT-type encoder ({reason}), and the task is {task}",
            f"An encoder can only {', '.join(HEAD_TASKS)}",
            "Give a text-to-text model such as --model google/flan-t5-small, or another --task",
        )


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
