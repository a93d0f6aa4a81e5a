"""`seqfit.describe_data` and `seqfit data`: a recipe, a run or data comes in, a `DataReport` goes out.

For data a recipe is guessed first. If that fails, the report has the columns and first rows, and the open question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqfit.errors import DataError, SeqfitError
from seqfit.inspection.given import EXAMPLE_MODEL, Data, Given, RecipeLike, find_given, guess_given
from seqfit.recipe import Recipe, SourceRecipe, apply_overrides
from seqfit.validation import load_checked_recipe

if TYPE_CHECKING:
    from seqfit.inspection.report import DataReport, HumanBaseline
    from seqfit.inspection.text_rows import Ask
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
    """What data looks like to a model: `print` the report, or read its fields; `to_json()` has all of them.

    `data` is a recipe or a run, or data itself: a file, a folder, a list of dicts, a pandas or polars DataFrame, a
    pyarrow Table, a datasets.Dataset. For data, task and columns are guessed; without a `model` lengths are in words.
    If the guess is not certain, the report's `open_question` says why. `rows` limits the rows of each source and split.
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
    from seqfit.inspection.text_rows import run_tryout

    found = find_given(data, overrides, task=task, model=model, command="data")
    recipe = load_for_description(found if found.data is None else guess_given(found))
    return run_tryout(recipe, rows, ask)


def load_for_description(given: Given) -> Recipe:
    """The recipe; one that was guessed without a model names an example, which is never loaded."""
    values = given.recipe
    if given.data is not None and given.model is None and isinstance(values, Mapping):
        values = dict(values) | {"model": {"name": EXAMPLE_MODEL} | dict(values.get("model", {}))}
    return load_checked_recipe(values, given.overrides)


def _describe(recipe: Recipe, given: Given, rows: int | None, progress: Progress | None) -> DataReport:
    from seqfit.inspection import describe

    if given.data is not None and given.model is None:
        return describe.describe_recipe_data(recipe, None, rows=rows, progress=progress)
    from seqfit.model import load_position_limit, load_tokenizer  # imports torch, so only for a valid recipe

    tokenizer, limit = load_tokenizer(recipe.model), load_position_limit(recipe.model)
    return describe.describe_recipe_data(recipe, tokenizer, position_limit=limit, rows=rows, progress=progress)


def _describe_columns(sources: Sequence[SourceRecipe], error: SeqfitError, given: Given) -> DataReport:
    """Columns and first rows of data for which there is no recipe; if its rows can't be read either, the error."""
    from seqfit.inspection import describe

    try:
        return replace(describe.describe_columns_only(sources, str(error)), command=given.command)
    except SeqfitError:
        raise error from None


def _read_source(found: Given) -> SourceRecipe:
    assert found.data is not None
    place = {"path" if Path(found.data).expanduser().exists() else "hub": found.data}
    values, _ = apply_overrides({"data": place}, [one for one in found.overrides if one.startswith("data.")])
    return SourceRecipe.model_validate(values["data"])
