"""`seqfit.describe_data` and `seqfit data`: what somebody gives comes in, a `DataReport` goes out.

A recipe or a run is described as it is; of data a recipe is guessed first. Data that can't be trained on as it is still
has columns to be shown, with the question that is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqfit.errors import DataError, SeqfitError
from seqfit.inspection.given import EXAMPLE_MODEL, Data, Given, RecipeLike, find_given, guess_given
from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.schema import Recipe, SourceRecipe
from seqfit.validation import load_checked_recipe

if TYPE_CHECKING:
    from seqfit.inspection.report import DataReport, HumanBaseline
    from seqfit.inspection.word_split import Ask
    from seqfit.progress import Progress


def describe_data(
    data: RecipeLike | Data,
    overrides: Sequence[str] = (),
    *,
    task: str | None = None,
    model: str | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """What data looks like to a model: `print` the report, or read its fields; `to_json()` has them all.

    `data` is a recipe or a run, or data itself: a file, a folder, a list of dicts, a pandas or polars DataFrame, a
    pyarrow Table, a datasets.Dataset. Of data, task and columns are guessed; without a `model` lengths are in words. A
    guess that is unsure is the report's `open_question`. `rows` looks at so many rows of each source and split only.
    """
    found = find_given(data, overrides, task=task, model=model, command="data")
    try:
        given = found if found.data is None else guess_given(found)
        recipe = load_for_description(given)
    except SeqfitError as error:
        if found.data is None:
            raise
        return _describe_columns([_read_source(found)], error, found)
    try:
        report = _describe(recipe, given, rows, progress)
    except DataError as error:
        return replace(_describe_columns(recipe.sources, error, given), task=recipe.task.name, guessed=given.notes)
    return replace(report, guessed=given.notes, command=given.command)


def try_task(
    data: RecipeLike | Data,
    overrides: Sequence[str] = (),
    *,
    ask: Ask,
    rows: int = 10,
    task: str | None = None,
    model: str | None = None,
) -> HumanBaseline:
    """Let a person do the task on some rows, and score the answers: `seqfit data FILE --try 10`."""
    from seqfit.inspection import word_split as human_baseline

    found = find_given(data, overrides, task=task, model=model, command="data")
    recipe = load_for_description(found if found.data is None else guess_given(found))
    return human_baseline.run_tryout(recipe, rows, ask)


def load_for_description(given: Given) -> Recipe:
    """The recipe; one that was guessed without a model gets the name of one, which nobody loads."""
    values = given.recipe
    if given.data is not None and given.model is None and isinstance(values, Mapping):
        values = dict(values) | {"model": {"name": EXAMPLE_MODEL} | dict(values.get("model", {}))}
    return load_checked_recipe(values, given.overrides)


def _describe(recipe: Recipe, given: Given, rows: int | None, progress: Progress | None) -> DataReport:
    from seqfit.inspection import describe

    if given.data is not None and given.model is None:
        return describe.describe_recipe_data(recipe, None, rows=rows, progress=progress)
    from seqfit.model.load import load_position_limit, load_tokenizer  # imports torch: the recipe is right by now

    tokenizer, limit = load_tokenizer(recipe.model), load_position_limit(recipe.model)
    return describe.describe_recipe_data(recipe, tokenizer, position_limit=limit, rows=rows, progress=progress)


def _describe_columns(sources: Sequence[SourceRecipe], error: SeqfitError, given: Given) -> DataReport:
    """What can be shown of data that can't be trained on as it is; where not even its rows are read, the error."""
    from seqfit.inspection import describe

    try:
        return replace(describe.describe_columns_only(sources, str(error)), command=given.command)
    except SeqfitError:
        raise error from None


def _read_source(found: Given) -> SourceRecipe:
    """Where data lies, as far as it is stated."""
    assert found.data is not None
    place = {"path" if Path(found.data).expanduser().exists() else "hub": found.data}
    values, _ = apply_overrides({"data": place}, [word for word in found.overrides if word.startswith("data.")])
    return SourceRecipe.model_validate(values["data"])
