"""The fields of the task from the columns of the data: source, target and what else the task needs.

In: the task (or None), the fields that the user gave, sampled rows per split. Out: the other fields, and notes. If the
columns leave two readings open, `Unsure` shows both on a real row, each with the options to paste.

    columns id, pregunta, contexto, respuesta; task qa
    -> {name: qa, source: "question: {pregunta}[[ context: {contexto}]]", target: "{respuesta}"}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from seqfit.errors import RecipeError, SeqfitError
from seqfit.inspection.column_names import score_role
from seqfit.inspection.columns import ColumnProfile, profile_columns
from seqfit.inspection.label_readings import (
    LabelKind,
    find_choice_base,
    find_label_kind,
    find_list_kind,
    find_written_lists,
)
from seqfit.inspection.reading import TITLES, FoundReading, Hints, Reading
from seqfit.inspection.roles import find_reading, find_task, list_columns
from seqfit.recipe import TaskRecipe
from seqfit.system import quote
from seqfit.tasks import TemplateRow, TurnKeys, column_text, columns_of, has_columns, render_template

TASKS: tuple[str, ...] = get_args(TaskRecipe.model_fields["name"].annotation)
_SHOWN_CHARS = 60
_MOST_UNUSED = 12  # columns that a note names


class Unsure(RecipeError):
    """The data is ambiguous; the message shows the two best readings and how to choose one."""


@dataclass
class TaskGuess:
    """Finds the task's fields that the user did not give."""

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
            reading = replace(reading, prefix="")  # a classification head needs no instruction
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
            return self._prefer_given(find_reading(self.wanted, columns, self.hints))
        for task in find_task(columns, self.hints):
            try:
                found = find_reading(task, columns, self.hints)
            except RecipeError:
                continue  # a role of this task is missing: another task may fit
            if task == "qa" and self._ends_in_numbers(found.best):
                found = find_reading("math", columns, self.hints)
            if task == "summarize" and (rival := self._find_class_of(columns, found.best)) is not None:
                found = FoundReading(found.best, rival, "the task could be to write headlines, or to classify")
            if task == "regression" and (rival := self._find_class(columns)) is not None:
                found = FoundReading(found.best, rival, "it has a score and a class")
            return self._prefer_given(found)
        raise self._no_task(columns)

    def _find_class_of(self, columns: list[ColumnProfile], summary: Reading) -> Reading | None:
        """The reading as classification, if the only summary is a title."""
        titled = {c.path for c in columns if c.name.last in TITLES or c.name.last == "headlines"}
        return self._find_class(columns) if set(columns_of(summary.target)) <= titled else None

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
        change = f"Add --task TASK, one of {', '.join(TASKS)}"
        return RecipeError(given, "The task can't be guessed from them", change)

    def _settle(self, found: FoundReading, rows: list[TemplateRow]) -> tuple[Reading, LabelKind]:
        """The reading, refined by the values of its target; `Unsure` if it is not certain."""
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

    def _unsure(self, doubt: str, readings: list[tuple[Reading, LabelKind]], rows: list[TemplateRow]) -> Unsure:
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
            f"{self.hints.title} is ambiguous: {doubt}. The two best readings, on one of its rows, each with the "
            "options to add:\n"
            + "\n".join(shown)
            + "\n"
            + "Add the options of the reading you want, or name other columns in braces in task.source and "
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

    def _templates(self, reading: Reading, columns: list[ColumnProfile]) -> dict[str, Any]:
        """One template if all files have the same columns, else one per kind of file."""
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
        unused = [_describe_unused(column, used) for column in columns if column.path not in used]
        unused = [
            text
            for text in unused
            if not any(text.startswith(f"{path}.") or path.startswith(f"{text}.") for path in used)
        ]
        first = next(iter(self.samples.values()))
        known = [*used, *(column.path for column in columns)]
        for name in dict.fromkeys(name for row in first for name in row):
            if not any(path == name or path.startswith(f"{name}.") for path in known):
                unused.append(f"{name} (no text)")
        if unused:
            more = f" and {len(unused) - _MOST_UNUSED} more" if len(unused) > _MOST_UNUSED else ""
            self.notes.append(f"unused columns: {', '.join(unused[:_MOST_UNUSED])}{more}")

    def _note_kind(self, task: str, kind: LabelKind) -> None:
        if kind.why:
            self.notes.append(f"task: {task} ({kind.why})")

    def _note_unanswered(self, reading: Reading, rows: list[TemplateRow]) -> None:
        """Questions with an empty list of answers get a target of their own."""
        if reading.task == "qa" and len(paths := columns_of(reading.target)) == 1:
            empty = sum(column_text(paths[0], row) == "" for row in rows)
            if empty:
                self.notes.append(
                    f"answers: {empty} of {len(rows)} sampled rows have none; where the list of answers is empty, the "
                    "target is task.no_answer ('unanswerable')"
                )


def _describe_unused(column: ColumnProfile, used: set[str]) -> str:
    whole = [path for path in column.within if path in used]
    reason = column.not_text or (f"part of {whole[0]}" if whole else "")
    return f"{column.path} ({reason})" if reason else column.path


def _with_speakers(reading: Reading, rows: Sequence[TemplateRow]) -> Reading:
    """Turns of a dialogue with their speakers: {dialogue} instead of {dialogue.text}."""
    source = reading.source
    for path in columns_of(source):
        outer, _, last = path.rpartition(".")
        values = [row[outer] for row in rows if row.get(outer)]
        if last in TurnKeys.TEXTS and values and all(map(TurnKeys.find, values)):
            source = source.replace(f"{{{path}}}", f"{{{outer}}}")
    return replace(reading, source=source)


def _refine(reading: Reading, rows: list[TemplateRow]) -> tuple[Reading, LabelKind, str | None]:
    """What the target's values mean: scores, sets of labels, several annotators; and a doubt, if there is one."""
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


def _is_shown(reading: Reading, row: TemplateRow) -> bool:
    paths = [path for template in (reading.source, reading.target) for path in columns_of(template)]
    return all(column_text(path, row).strip() for path in paths)


def _render(template: str, row: TemplateRow) -> str:
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
