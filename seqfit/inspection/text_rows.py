"""Rows as text, without a tokenizer: their lengths in words, and a person's score on some of them.

In: a recipe, whose model is not used. `WordSplit` keeps a few numbers for each row (lengths, hashes, how often a target
occurs), reads a text again when it is shown, and counts the rows that can't be used by cause.

    {"q": "Who wrote it?", "a": "Ada"}    source 3 words, target 1, three hashes; 34 bytes in all
    {"q": "And when?", "a": ""}           left out: an empty target

`run_tryout` lets a person do the task: rows of an evaluation split are shown, answers are typed, the task's metrics
score them. A person who scores 40 on ten rows knows that the labels or the metric are not what they seem.
"""

from __future__ import annotations

import random
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqfit.data import BadRow, SourceSplits
from seqfit.errors import DataError, SeqfitError
from seqfit.inspection.report import HumanBaseline, LeftOut
from seqfit.inspection.statistics import RowHasher
from seqfit.metrics import score
from seqfit.progress import Progress
from seqfit.recipe import SPLITS, Recipe
from seqfit.tasks import Example, Task, build_task

_SHOWN_LEFT_OUT = 5  # rows of each cause
_REPORT_EVERY_ROWS = 1000
# Scripts without spaces between words: each character counts as a word.
_UNSPACED = re.compile(r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_SPLITS = ("validation", "test", "train")  # the first that exists: looking at test rows would bias later choices


def count_text_words(text: str) -> int:
    """Words between spaces, and each character of Chinese, Japanese, Thai and the like."""
    if text.isascii():
        return len(text.split())
    rest, characters = _UNSPACED.subn(" ", text)
    return characters + len(rest.split())


class WordSplit:
    def __init__(self, name: str, parts: Sequence[SourceSplits], task: Task, progress: Progress) -> None:
        self._name = name
        self._parts = parts
        self._task = task
        self.titles = [part.source.title for part in parts]
        self.targets: Counter[str] = Counter()  # only if targets are classes or numbers
        sources, source_words, target_words = array("i"), array("i"), array("i")
        counts_targets, hasher, bad = task.recipe.name in task.recipe.HEAD_TASKS, RowHasher(), BadRowCount()
        for number, (source, example) in enumerate(render_rows(parts, name, task, bad)):
            if number % _REPORT_EVERY_ROWS == 0:
                progress(f"{name}: reading", number, None)
            sources.append(source)
            source_words.append(count_text_words(example.source))
            target_words.append(count_text_words(example.target))
            hasher.add(example.source, example.target, example.group)
            if counts_targets:
                self.targets[example.target] += 1
        self.hashes = hasher.finish()
        self.source_lengths = np.array(source_words, dtype=np.int32)
        self.target_lengths = np.array(target_words, dtype=np.int32)
        self.source_index = np.array(sources, dtype=np.int32)
        self.left_out = bad.summarise(name)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def texts(self, rows: Sequence[int]) -> list[Example]:
        """Some rows as text, in one pass over the files."""
        wanted, found = set(rows), {}
        for number, (_, example) in enumerate(render_rows(self._parts, self._name, self._task, BadRowCount())):
            if number in wanted:
                found[number] = example
                if len(found) == len(wanted):
                    break
        return [found[row] for row in rows]


def render_rows(
    parts: Sequence[SourceSplits], split: str, task: Task, bad: BadRowCount
) -> Iterator[tuple[int, Example]]:
    """Index of the part and the row as text; rows that can't be used are counted in `bad`."""
    for source, part in enumerate(parts):
        columns: set[str] = set()
        for number, row in part.select(split).rows():
            if isinstance(row, BadRow):
                bad.add(row.cause, row.detail)
                continue
            columns.update(row)
            row_id = str(number if row.get("id") in (None, "") else row["id"])
            try:
                example = task.render(row, row_id)
            except SeqfitError as error:
                bad.add(_find_cause(error, row_id), f"row {number}")
                continue
            yield source, example
        if columns:
            task.check_columns(columns)


@dataclass
class BadRowCount:
    counts: Counter[str] = field(default_factory=Counter)  # by cause
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, cause: str, detail: str) -> None:
        self.counts[cause] += 1
        shown = self.first.setdefault(cause, [])
        if len(shown) < _SHOWN_LEFT_OUT:
            shown.append(detail)

    def summarise(self, split: str) -> list[LeftOut]:
        """The most frequent cause first."""
        return [LeftOut(split, cause, rows, tuple(self.first[cause])) for cause, rows in self.counts.most_common()]


def _find_cause(error: SeqfitError, row_id: str) -> str:
    """The same text for rows with the same mistake: the first sentence of the message, without the row's id."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, str) else str(error).partition(". ")[0].removeprefix(f"Row {row_id} has ")


def read_words(recipe: Recipe, progress: Progress) -> tuple[dict[str, WordSplit], list[str], list[LeftOut]]:
    """The splits that have rows, the events of reading them, and the rows that can't be used."""
    task = build_task(recipe.task)
    found = _find_splits(recipe, task, progress)
    splits: dict[str, WordSplit] = {}
    events: list[str] = []
    for name in SPLITS:
        parts = [one for one in found if name in one.names]
        events += [event for part in parts for event in part.select(name).events]
        if parts:
            splits[name] = WordSplit(name, parts, task, progress)
    left_out = [entry for split in splits.values() for entry in split.left_out]
    unique = list(dict.fromkeys(events))  # events of a file come once for each of its splits
    return {name: split for name, split in splits.items() if len(split)}, unique, left_out


def _find_splits(recipe: Recipe, task: Task, progress: Progress | None) -> list[SourceSplits]:
    named = task.named_columns()
    return [SourceSplits(source, recipe.seed, task.group_of, progress, named) for source in recipe.sources]


@dataclass(frozen=True)
class TryQuestion:
    """A row to be shown; `choices` are the labels, if the answer is one."""

    example: Example
    number: int
    total: int
    choices: tuple[str, ...]


Ask = Callable[[TryQuestion], str | None]  # "" is an answer as well, None ends the session


def run_tryout(recipe: Recipe, rows: int, ask: Ask, progress: Progress | None = None) -> HumanBaseline:
    task = build_task(recipe.task)
    split, examples = _choose_rows(recipe, task, rows, progress)
    choices = tuple(recipe.task.label_values)
    answers: list[tuple[Example, str]] = []
    for number, example in enumerate(examples, 1):
        answer = ask(TryQuestion(example, number, len(examples), choices))
        if answer is None:
            break
        answers.append((example, task.extract(answer)))
    scores = score(
        list(recipe.eval.metrics or task.default_metrics),
        [example.references for example, _ in answers],
        [answer for _, answer in answers],
        language=recipe.task.language or "en",
        labels=choices or None,
    )
    shown = (
        {"id": example.id, "source": example.source, "answer": answer, "references": list(example.references)}
        for example, answer in answers
    )
    return HumanBaseline(split, len(answers), scores.values, scores.absent, tuple(shown))


def _choose_rows(recipe: Recipe, task: Task, rows: int, progress: Progress | None) -> tuple[str, list[Example]]:
    """Reservoir sampling: one pass, with only the chosen rows in memory."""
    found = _find_splits(recipe, task, progress)
    name = next((name for name in _SPLITS if any(name in one.names for one in found)), _SPLITS[-1])
    parts = [one for one in found if name in one.names]
    generator, kept, bad = random.Random(recipe.seed), [], BadRowCount()
    for number, (_, example) in enumerate(render_rows(parts, name, task, bad)):
        if number < rows:
            kept.append(example)
        elif (place := generator.randrange(number + 1)) < rows:
            kept[place] = example
    if not kept:
        causes = ", ".join(f"{cause} ({count:,})" for cause, count in bad.counts.most_common())
        raise DataError(
            f"{name} has no usable row: {causes}", "--try shows rows of this split", "Correct the rows or the templates"
        )
    generator.shuffle(kept)
    return name, kept
