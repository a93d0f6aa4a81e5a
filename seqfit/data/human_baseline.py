"""A person does the task: rows of an evaluation split are shown, answers are typed, the task's metrics score them.

In: a recipe, of which the model is not used, and a function that asks. Out: `HumanBaseline`. A model that is worse than
a person in ten rows has something to learn; a person who scores 40 on ten rows knows that the labels or the metric are
not what they seem.

    ask(Question(example, 1, 10, choices=())) -> "Oslo"
    ""  is an answer, too, the right one where a question has none; None ends it
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from seqfit.data.data_report import HumanBaseline
from seqfit.data.progress import Progress
from seqfit.data.splits import find_splits
from seqfit.data.word_split import BadRowCount, render_rows
from seqfit.errors import DataError, complain
from seqfit.metrics import score
from seqfit.recipe.schema import Recipe
from seqfit.tasks import Example, Task, build_task

_SPLITS = ("validation", "test", "train")  # the first that there is: a look at test rows misleads later choices


@dataclass(frozen=True)
class Question:
    """A row that is shown; `choices` are the labels that the answer can be, where it is one."""

    example: Example
    number: int
    total: int
    choices: tuple[str, ...]


Ask = Callable[[Question], str | None]


def try_task(recipe: Recipe, rows: int, ask: Ask, progress: Progress | None = None) -> HumanBaseline:
    """Ask for answers to so many rows, chosen by the recipe's seed, and score those that were given."""
    task = build_task(recipe.task)
    split, examples = _choose_rows(recipe, task, rows, progress)
    choices = tuple(recipe.task.label_values)
    answers: list[tuple[Example, str]] = []
    for number, example in enumerate(examples, 1):
        answer = ask(Question(example, number, len(examples), choices))
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
    """Reservoir sampling: one pass, and as many rows in memory as are asked for."""
    found = [
        find_splits(source, recipe.seed, task.group_of, progress, task.named_columns()) for source in recipe.sources
    ]
    name = next((name for name in _SPLITS if any(name in one.names for one in found)), _SPLITS[-1])
    parts = [(one.source.title, one.select(name)) for one in found if name in one.names]
    generator, kept, bad = random.Random(recipe.seed), [], BadRowCount()
    for number, (_, example) in enumerate(render_rows(parts, task, bad)):
        if number < rows:
            kept.append(example)
        elif (place := generator.randrange(number + 1)) < rows:
            kept[place] = example
    if not kept:
        causes = ", ".join(f"{cause} ({count:,})" for cause, count in bad.counts.most_common())
        raise DataError(
            complain(f"{name} has no row that can be used: {causes}", "There is nothing to try", "Correct the rows")
        )
    generator.shuffle(kept)
    return name, kept
