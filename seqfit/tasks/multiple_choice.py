"""Questions with choices: the source ends with them, the target is the text of the right one.

    task.source "{q}", task.choices "{options}", task.target "{answer}", task.choice_base 0
    {"q": "Which flies?", "options": ["dog", "crow"], "answer": 1}
    -> source "Which flies? choices: (a) dog (b) crow", target "crow"

A list of true and false, one per choice, names the one that is true.

The one idea: how the target names the right choice (number, letter, text) is the same in the whole data set, and
task.choice_base states it. Without it a row is used only if it is unambiguous: '2' among the choices 1, 2, 3 may be a
text or a number, and B among the choices B, A, C a text or a letter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Sequence

from seqfit.errors import RowError
from seqfit.tasks.labels import vote
from seqfit.tasks.task import Task, check_known, fold_word
from seqfit.tasks.template import (
    TemplateRow,
    choose_template,
    columns_of,
    has_columns,
    parse_list,
    render_items,
    render_template,
)

LETTERS = string.ascii_lowercase
_LETTER = re.compile(r"\(?([a-z])[).:]?")
_NUMBER = re.compile(r"[0-9]+(?:\.0+)?")  # a column with gaps holds 2.0


class MultipleChoiceTask(Task):
    default_metrics = ("accuracy",)
    main_score = "accuracy"

    def render_source(self, row: TemplateRow, row_id: str = "?") -> str:
        choices = self.choices_of(row)
        if not 2 <= len(choices) <= len(LETTERS):
            raise RowError(
                f"Row {row_id} has {len(choices)} choices",
                f"A question has from 2 to {len(LETTERS)} choices that are not empty",
                "Correct or remove the row, or correct task.choices",
                cause="too few choices" if len(choices) < 2 else "too many choices",
            )
        return f"{super().render_source(row, row_id)} {_show_choices(choices)}"

    def own_texts(self) -> list[str]:
        return [*super().own_texts(), _show_choices(["."] * len(LETTERS))]

    def choices_of(self, row: TemplateRow) -> list[str]:
        return [text for text in self._places(row) if text]

    def source_columns(self) -> tuple[str, ...]:
        choices = [path for template in self._choice_templates() for path in columns_of(template)]
        return tuple(dict.fromkeys([*super().source_columns(), *choices]))

    def check_columns(self, columns: Collection[str]) -> None:
        """Also checks the choices: a column that no row has would be left out silently."""
        super().check_columns(columns)
        check_known(self._choice_templates(), columns, "A choice may be empty in some rows, but its column must exist")

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        """The choice that the text is, or whose letter it is; any other text stays, and so counts as wrong."""
        answer = super().extract(generated)
        folded = fold_word(answer)
        shown = dict(zip(map(fold_word, map(_show, LETTERS, choices)), choices, strict=False))
        texts = {fold_word(choice): choice for choice in choices}
        letter = _find_letter(answer)
        named = {} if letter is None or letter >= len(choices) else {folded: choices[letter]}
        return (named | shown | texts).get(folded, answer)

    def _target(self, row: TemplateRow, row_id: str) -> str:
        places = self._places(row)
        place = self._find_marked(row, places)
        if place is None:
            place = vote([self._place(entry, places, row_id) for entry in self._entries(row, row_id)])
        text = places[place]
        if not text:
            raise RowError(
                f"Row {row_id} has an empty text for the choice that its target names",
                "The right choice needs a text",
                "Correct or remove the row",
                cause="empty choice",
            )
        return text

    def _find_marked(self, row: TemplateRow, places: Sequence[str]) -> int | None:
        """The place of the one true among as many values as choices: [false, true, false]."""
        template = choose_template(self.recipe.target, row)
        marks = [mark.lower() for mark in (render_items(template, row) or [] if has_columns(template, row) else [])]
        is_marked = len(marks) == len(places) and set(marks) <= {"true", "false"} and marks.count("true") == 1
        return marks.index("true") if is_marked else None

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        return (target,)

    def _choice_templates(self) -> list[str]:
        given = self.recipe.choices or []
        return [given] if isinstance(given, str) else given

    def _places(self, row: TemplateRow) -> list[str]:
        """The text at each place, '' if there is none: numbers and letters count empty places as well."""
        if isinstance(self.recipe.choices, str):
            items = render_items(self.recipe.choices, row)
            if items is None:
                items = parse_list(render_template(self.recipe.choices, row)) or []
            return [text.strip() for text in items]
        return [render_template(one, row).strip() if has_columns(one, row) else "" for one in self.recipe.choices or ()]

    def _place(self, entry: str, places: Sequence[str], row_id: str) -> int:
        base, entry = self.recipe.choice_base, entry.strip()
        number = int(float(entry)) if _NUMBER.fullmatch(entry) else None
        if base in (0, 1) and number is not None:
            return _check_range(number - int(base), entry, places, row_id)
        text = next((place for place, one in enumerate(places) if one and fold_word(one) == fold_word(entry)), None)
        letter = _find_letter(entry)
        if letter is not None and (base == "a" or (base != "text" and text is None)):
            return _check_range(letter, entry, places, row_id)
        if text is None or base == "a":
            is_number = base is None and number is not None
            raise RowError(
                f"Row {row_id} has the target '{entry}', and the choices {', '.join(map(repr, places))}",
                "The target must be the number, the letter or the text of one of them",
                "Set task.choice_base=0 if numbers count from 0, task.choice_base=1 if they count from 1"
                if is_number
                else "Correct or remove the row, or correct task.target, task.choices or task.choice_base",
                cause="a number without task.choice_base" if is_number else "target is none of the choices",
            )
        others = {letter, number, None if number is None else number - 1} & set(range(len(places))) - {text}
        if others and base != "text":
            raise RowError(
                f"Row {row_id} has the target '{entry}', which is the text of one choice and may name another",
                "Whether targets are numbers, letters or texts is the same in the whole data set",
                "Set task.choice_base: 0 or 1 for numbers that count from there, a for letters, text for texts",
                cause="target may mean two choices",
            )
        return text


def _show_choices(choices: Sequence[str]) -> str:
    """'choices: (a) dog (b) crow'."""
    return f"choices: {' '.join(map(_show, LETTERS, choices))}"


def _show(letter: str, choice: str) -> str:
    return f"({letter}) {choice}"


def _find_letter(text: str) -> int | None:
    """'B', '(b)', 'b.' -> 1."""
    match = _LETTER.fullmatch(text.strip().lower())
    return None if match is None else LETTERS.index(match[1])


def _check_range(place: int, entry: str, places: Sequence[str], row_id: str) -> int:
    if 0 <= place < len(places):
        return place
    raise RowError(
        f"Row {row_id} has the target '{entry}', and {len(places)} choices",
        "The target must name one of them",
        "Correct or remove the row; if all rows are off by one, correct task.choice_base",
        cause="index out of range",
    )
