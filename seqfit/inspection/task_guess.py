"""The fields of the task from the columns of the data: source, target and what else the task needs.

In: the task (or None), the fields that the user gave, sampled rows per split. Out: the other fields, and notes. If the
columns leave two readings open, `Unsure` shows both on a real row, each with the options to paste. A role without a
column is an error that lists the columns.

    qa: id, pregunta, contexto, respuesta     -> "question: {pregunta}[[ context: {contexto}]]", target "{respuesta}"
    classify: a (4 values), b, c (sentences)  -> "{b} {c}", target "{a}"
    classify: text, stance, topic (both few)  -> "{text}" -> "{stance}", or "{text}" -> "{topic}": ambiguous

The one idea: every column is accounted for. It is part of the source, the target, or unused for a reason (ids, dates, a
second form of the answer, ...). Prose without such a reason is a doubt, because training works without an error even
if the model never sees half of its input.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from seqfit.errors import RecipeError, SeqfitError
from seqfit.inspection import label_readings, question_readings, text_readings
from seqfit.inspection.column_names import find_languages, score_role
from seqfit.inspection.columns import ColumnProfile, find_named, profile_columns
from seqfit.inspection.label_readings import LabelKind
from seqfit.inspection.question_readings import find_choice_reading, find_choice_target, find_choices
from seqfit.inspection.text_readings import TITLES, FoundReading, Hints, Missing, Reading
from seqfit.recipe import TaskRecipe
from seqfit.system import quote
from seqfit.tasks import TemplateRow, TurnKeys, column_text, columns_of, has_columns, render_template

TASKS: tuple[str, ...] = get_args(TaskRecipe.model_fields["name"].annotation)
_SHOWN_CHARS = 60
_MOST_UNUSED = 12  # columns that a note names
_MOST_LISTED = 30


def find_reading(task: str, columns: Sequence[ColumnProfile], hints: Hints | None = None) -> FoundReading:
    hints = hints or Hints()
    try:
        return _FINDERS[task](columns, hints)
    except Missing as missing:
        source, target = ("question: {col} context: {col2}", "{col3}") if task == "qa" else ("{col}", "{col2}")
        change = f"Name the columns in braces: task.source='{source}' task.target='{target}'"
        if "choices" in missing.args:
            change += (
                " task.choices='{col3}', or with one column per choice task.choices='[\"{col3}\", \"{col4}\"]'. If the "
                "question contains its choices, use --task qa"
            )
        roles = " and one for ".join(missing.args)
        if len(columns) == 1:
            change = (
                f"Write a second column. If each text of '{columns[0].path}' holds both, split it, in pandas: "
                f"frame[['source', 'target']] = frame['{columns[0].path}'].str.split(SEPARATOR, n=1, expand=True)"
            )
        raise RecipeError(
            f"{hints.title} has the columns {list_columns(columns)}",
            f"The task {task} needs a column for {roles}, and no column has such a name or content",
            change,
        ) from None


def find_task(columns: Sequence[ColumnProfile], hints: Hints) -> list[str]:
    """The tasks that fit the columns, the most likely first."""
    question, answer = find_named(columns, "question"), find_named(columns, "answer", 0.6)
    prose = [column for column in columns if column.is_prose]
    tasks: list[str] = []
    plain = {column.name.plain for column in columns}
    if {"history", "reply"} <= {column.path for column in columns}:
        tasks.append("generate")
    if "instruction" in plain and plain & {"output", "response", "completion"}:
        tasks.append("generate")
    if find_choices(columns) and find_choice_target(columns) is not None:
        tasks.append("multiple-choice")
    is_label = answer is not None and answer.has_few_values and score_role(answer.name, "label") >= 0.8
    if question is not None and answer is not None and answer.path != question.path and question.is_prose:
        tasks += [] if is_label and len(prose) > 1 else ["qa"]
    if question is None and len(prose) == 2 and any(column.name.plain == "answer" for column in prose):
        tasks.append("generate")
    texts = [c for c in columns if c.not_text is None and not c.is_number and not c.has_few_values]
    has_languages = len(find_languages(column.path for column in texts)) > 1
    if has_languages or text_readings.find_stated_direction(prose, hints) is not None:
        tasks.append("translate")
    summary = find_named(prose, "summary", 0.9)
    if summary is not None and any(column.mean_chars > 2 * summary.mean_chars for column in prose):
        tasks.append("summarize")
    if text_readings.find_known_pair([c for c in columns if c.not_text is None and not c.has_few_values]) is not None:
        tasks.append("generate")
    if label_readings.find_flags(columns) or any(c.is_list and label_readings.score_label(c) > 1 for c in columns):
        tasks.append("multilabel")
    labels = label_readings.find_label_candidates(columns)
    if labels and (prose or len(columns) > 1):
        tasks.append("regression" if labels[0].has_fractions else "classify")
    return [task for task in tasks if task in TaskRecipe.HEAD_TASKS or not hints.has_head] or tasks


_FINDERS: dict[str, Callable[[Sequence[ColumnProfile], Hints], FoundReading]] = {
    "qa": question_readings.find_qa,
    "summarize": text_readings.find_summary,
    "translate": text_readings.find_translation,
    "classify": label_readings.find_classes,
    "math": question_readings.find_math,
    "generate": text_readings.find_generation,
    "regression": partial(label_readings.find_classes, task="regression"),
    "multilabel": label_readings.find_label_sets,
    "multiple-choice": lambda columns, hints: find_choice_reading(columns, find_choices(columns)),
}


def list_columns(columns: Sequence[ColumnProfile]) -> str:
    """Their names, with the reason why some are not text; only the first if there are many."""
    names = [f"{c.path} ({c.not_text})" if c.not_text else c.path for c in columns[:_MOST_LISTED]]
    left = len(columns) - len(names)
    return ", ".join(names) + (f" and {left} more" if left else "")


class Unsure(RecipeError):
    """The data is ambiguous; the message shows the two best readings and how to choose one."""


@dataclass
class TaskGuess:
    wanted: str | None
    given: Mapping[str, Any]
    samples: Mapping[str, list[TemplateRow]]
    hints: Hints
    unfolding: Mapping[str, str]
    notes: list[str]

    def guess(self) -> dict[str, Any]:
        rows = next(iter(self.samples.values()))
        columns = profile_columns(rows)
        if "source" in self.given and ("target" in self.given or "label_columns" in self.given):
            target = self.given.get("target", "")
            kind = LabelKind()
            if not isinstance(target, list):
                kind = label_readings.find_label_kind(self.wanted or "generate", target, rows)
            if self.wanted == "multiple-choice" and "choices" in self.given and "choice_base" not in self.given:
                kind = self._find_choice_base(rows)
            name = kind.task or self.wanted or next(iter(find_task(columns, self.hints)), None)
            if name is None:
                raise self._no_task(columns)
            self.notes += [f"task: {name} ({kind.why})"] if kind.why else []
            return {"name": name} | {key: value for key, value in kind.more.items() if key not in self.given}
        found = self._find(columns)
        other = None if found.other is None else _with_speakers(found.other, rows)
        reading, kind = self._settle(replace(found, best=_with_speakers(found.best, rows), other=other), rows)
        if not kind.more and reading.task in ("summarize", "translate", "generate"):
            kind = label_readings.find_written_lists(reading.target, self.samples)
        if self.hints.has_head:
            reading = replace(reading, prefix="")  # a classification head needs no instruction
        values = {"name": reading.task} | self._templates(reading)
        values |= {name: value for name, value in {**reading.more, **kind.more}.items() if name not in self.given}
        if "source" not in self.given:
            values["prefix"] = self.given.get("prefix", reading.prefix)
        self._note_reading(reading, columns)
        self.notes += [f"task: {reading.task} ({kind.why})"] if kind.why else []
        paths = columns_of(reading.target) if reading.task == "qa" else []
        if len(paths) == 1 and (empty := sum(column_text(paths[0], row) == "" for row in rows)):
            self.notes.append(
                f"answers: {empty} of {len(rows)} sampled rows have none; where the list of answers is empty, the "
                "target is task.no_answer ('unanswerable')"
            )
        return values

    def _find_choice_base(self, rows: list[TemplateRow]) -> LabelKind:
        """How the stated target names the right choice; `Unsure` if numbers may count from 0 or from 1."""
        source, target, choices = (self.given[name] for name in ("source", "target", "choices"))
        kind = label_readings.find_choice_base(target, choices, rows)
        if kind.doubt is not None:
            reading = Reading("multiple-choice", "", source, target, {"choices": choices})
            raise self._unsure(kind.doubt, [(reading, kind), (reading, LabelKind(more={"choice_base": 1}))], rows)
        return kind

    def _find(self, columns: list[ColumnProfile]) -> FoundReading:
        if self.wanted is not None:
            return self._prefer_given(find_reading(self.wanted, columns, self.hints))
        for task in find_task(columns, self.hints):
            try:
                found = find_reading(task, columns, self.hints)
            except RecipeError:
                continue  # a role of this task is missing: another task may fit
            rows = next(iter(self.samples.values()))
            if task == "qa" and sum("####" in render_template(found.best.target, row) for row in rows) > len(rows) / 2:
                found = find_reading("math", columns, self.hints)  # answers end in a number, as those of GSM8K
            doubt = "it has a score and a class" if task == "regression" else None
            titles = {c.path for c in columns if c.name.last in TITLES or c.name.last == "headlines"}
            if task == "summarize" and set(columns_of(found.best.target)) <= titles:
                doubt = "the task could be to write headlines, or to classify"
            if doubt is not None and (rival := self._find_class(columns)) is not None:
                found = FoundReading(found.best, rival, doubt)
            return self._prefer_given(found)
        raise self._no_task(columns)

    def _find_class(self, columns: list[ColumnProfile]) -> Reading | None:
        """The reading as classification, if a column of few values that are not scores has a label's name."""
        named = [c for c in columns if c.has_few_values and not c.has_fractions and score_role(c.name, "label") >= 0.3]
        try:
            found = find_reading("classify", columns, self.hints).best if named else None
        except SeqfitError:
            return None
        return found if found is not None and set(columns_of(found.target)) & {c.path for c in named} else None

    def _prefer_given(self, found: FoundReading) -> FoundReading:
        """The reading whose source or target has the columns that the user gave, if there is one."""
        for side in {"source", "target"} & set(self.given):
            stated = self.given[side]
            wanted = {path for one in ([stated] if isinstance(stated, str) else stated) for path in columns_of(one)}
            for reading in (found.best, found.other):
                if reading is not None and set(columns_of(getattr(reading, side))) == wanted:
                    return FoundReading(reading)
        return found

    def _no_task(self, columns: list[ColumnProfile]) -> RecipeError:
        given = f"{self.hints.title} has the columns {list_columns(columns)}"
        change = f"Add --task TASK, one of {', '.join(TASKS)}"
        return RecipeError(given, "The task can't be guessed from them", change)

    def _settle(self, found: FoundReading, rows: list[TemplateRow]) -> tuple[Reading, LabelKind]:
        """The reading, refined by the values of its target; `Unsure` if it is not certain."""
        best, kind = _refine(found.best, rows)
        if found.doubt is not None and found.other is not None:
            open_sides = [side for side in ("source", "target") if side not in self.given]
            if any(getattr(found.best, side) != getattr(found.other, side) for side in open_sides):
                raise self._unsure(found.doubt, [(best, kind), _refine(found.other, rows)], rows)
        if kind.doubt is not None:
            other = (replace(best, task="regression", prefix="score: "), LabelKind("regression"))
            if best.task == "multiple-choice":
                other = (best, LabelKind(more={"choice_base": 1}))
            elif "references" in kind.more:
                other = (best, LabelKind())
            raise self._unsure(kind.doubt, [(best, kind), other], rows)
        return best, kind

    def _unsure(self, doubt: str, readings: list[tuple[Reading, LabelKind]], rows: list[TemplateRow]) -> Unsure:
        shown = []
        for number, (reading, kind) in enumerate(readings, 1):
            templates = (reading.source, reading.target)
            paths = [path for template in templates for path in columns_of(template)]
            filled = (row for row in rows if all(column_text(path, row).strip() for path in paths))
            row = next(filled, rows[0])
            source, target = (_show(template, row) for template in templates)
            choices = f", choices: {reading.choices}" if reading.choices else ""
            shown.append(
                f"  {number}. {reading.task}: {reading.source} -> {reading.target}{choices}\n"
                f"       '{source}' -> '{target}'\n"
                f"       {self._options(reading, kind)}"
            )
        names = list_columns([replace(column, not_text=None) for column in profile_columns(rows)])
        return Unsure(
            f"{self.hints.title} is ambiguous: {doubt}. The two best readings, on one of its rows, each with the "
            "options to add:\n"
            + "\n".join(shown)
            + "\nAdd the options of the reading you want, or name other columns in braces in task.source and "
            f"task.target. The columns are {names}."
        )

    def _options(self, reading: Reading, kind: LabelKind) -> str:
        argv = [] if reading.task == self.wanted else ["--task", reading.task]
        argv += [quote(f"data.{name}={path}") for name, path in self.unfolding.items()]
        fields = {"source": reading.source, "target": reading.target or None, **reading.more, **kind.more}
        for name, value in fields.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                argv.append(quote(f"task.{name}={text}"))
        return " ".join(argv)

    def _templates(self, reading: Reading) -> dict[str, Any]:
        """One template if all files have the same columns, else one per kind of file."""
        sides = {side: [getattr(reading, side)] for side in ("source", "target") if side not in self.given}
        references = list(reading.more.get("references", []))
        for rows in itertools.islice(self.samples.values(), 1, None):
            templates = [template for found in sides.values() for template in found if template]
            if not rows or all(has_columns(template, rows[0]) for template in templates):
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
        choices = f", choices: {reading.choices}" if reading.choices else ""
        self.notes.append(f"{reading.task}: '{prefix}{reading.source}' -> '{target}'{choices}")
        used = {path for template in (reading.source, reading.target) for path in columns_of(template)}
        used |= {path for value in reading.more.values() for path in _paths_in(value)}
        unused = []
        for column in columns:
            whole = [path for path in column.within if path in used]
            reason = column.not_text or (f"part of {whole[0]}" if whole else "")
            text = f"{column.path} ({reason})" if reason else column.path
            is_near = any(text.startswith(f"{path}.") or path.startswith(f"{text}.") for path in used)
            if column.path not in used and not is_near:
                unused.append(text)
        first = next(iter(self.samples.values()))
        known = [*used, *(column.path for column in columns)]
        for name in dict.fromkeys(name for row in first for name in row):
            if not any(path == name or path.startswith(f"{name}.") for path in known):
                unused.append(f"{name} (no text)")
        if unused:
            more = f" and {len(unused) - _MOST_UNUSED} more" if len(unused) > _MOST_UNUSED else ""
            self.notes.append(f"unused columns: {', '.join(unused[:_MOST_UNUSED])}{more}")


def _with_speakers(reading: Reading, rows: Sequence[TemplateRow]) -> Reading:
    """Turns of a dialogue with their speakers: {dialogue} instead of {dialogue.text}."""
    source = reading.source
    for path in columns_of(source):
        outer, _, last = path.rpartition(".")
        values = [row[outer] for row in rows if row.get(outer)]
        if last in TurnKeys.TEXTS and values and all(map(TurnKeys.find, values)):
            source = source.replace(f"{{{path}}}", f"{{{outer}}}")
    return replace(reading, source=source)


def _refine(reading: Reading, rows: list[TemplateRow]) -> tuple[Reading, LabelKind]:
    """What the target's values mean: scores, sets of labels, several annotators."""
    if reading.task == "multiple-choice":
        return reading, label_readings.find_choice_base(reading.target, reading.more["choices"], rows)
    if reading.task in ("summarize", "translate", "generate"):
        return reading, label_readings.find_list_kind(reading.target, rows)
    kind = label_readings.find_label_kind(reading.task, reading.target, rows)
    if kind.task is not None and kind.task != reading.task:
        prefix = "score: " if kind.task == "regression" else reading.prefix
        reading = replace(reading, task=kind.task, prefix=prefix)
    return reading, kind


def _show(template: str, row: TemplateRow) -> str:
    """On one line, without the middle of a long text."""
    try:
        text = " ".join(render_template(template, row).split())
    except RecipeError:
        return ""
    return text if len(text) <= 2 * _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ... {text[-_SHOWN_CHARS:]}"


def _paths_in(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item
            if "{" in item:
                yield from columns_of(item)
