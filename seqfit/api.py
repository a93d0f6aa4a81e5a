"""The public functions that put packages together which do not know each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import DataError, RecipeError, SeqfitError, complain
from seqfit.inspection.given import EXAMPLE_MODEL, Data, Given, RecipeLike, find_given, guess_given, read_given
from seqfit.recipe.load import load_recipe
from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.schema import SPLITS, ModelRecipe, Recipe, SourceRecipe
from seqfit.validation import load_checked_recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from seqfit.inspection.report import DataReport, HumanBaseline
    from seqfit.inspection.word_split import Ask
    from seqfit.planning.report import Answer
    from seqfit.planning.timing import Rates
    from seqfit.progress import Progress
    from seqfit.scaling.report import Scaling
    from seqfit.trimming.choose import Mode
    from seqfit.trimming.weights import TrimReport


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
    return human_baseline.try_task(recipe, rows, ask)


def load_for_description(given: Given) -> Recipe:
    """The recipe; one that was guessed without a model gets the name of one, which nobody loads."""
    values = given.recipe
    if given.data is not None and given.model is None and isinstance(values, Mapping):
        values = dict(values) | {"model": {"name": EXAMPLE_MODEL} | dict(values.get("model", {}))}
    return load_checked_recipe(values, given.overrides)


def _describe(recipe: Recipe, given: Given, rows: int | None, progress: Progress | None) -> DataReport:
    from seqfit.inspection import describe

    if given.data is not None and given.model is None:
        return describe.describe_data(recipe, None, rows=rows, progress=progress)
    from seqfit.model.load import load_position_limit, load_tokenizer  # imports torch: the recipe is right by now

    tokenizer, limit = load_tokenizer(recipe.model), load_position_limit(recipe.model)
    return describe.describe_data(recipe, tokenizer, position_limit=limit, rows=rows, progress=progress)


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


def trim(
    model: str | Path,
    out: str | Path,
    *,
    data: Sequence[str | Path] = (),
    recipe: Recipe | str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    mode: Mode | None = None,
    tokenizer: str | Path | None = None,
    progress: Progress | None = None,
) -> TrimReport:
    """Write to the folder `out` a model that knows only the words of some data files, or of a recipe's data.

    `mode`: data, language or a number of further words; default: what the recipe says, or else data.
    """
    _check_word_source(data, recipe is not None, overrides)
    loaded = None if recipe is None else load_recipe(recipe, overrides)
    # These import torch: a recipe's mistakes are reported before.
    from seqfit.model.load import check_vocabulary, load_tokenizer, position_limit
    from seqfit.trimming.folder import check_free, load_whole, save_trimmed
    from seqfit.trimming.remap import count_file_words
    from seqfit.trimming.vocabulary import check_trimmable
    from seqfit.trimming.weights import trim_vocabulary

    check_free(Path(out))
    place = {"path" if Path(model).is_dir() else "name": str(model)}
    wanted = ModelRecipe.model_validate(place | {"tokenizer": None if tokenizer is None else str(tokenizer)})
    full = load_tokenizer(wanted)
    check_trimmable(full)
    whole = load_whole(wanted)
    check_vocabulary(whole, full, wanted)
    counts = (
        count_file_words(list(map(Path, data)), full, progress)
        if loaded is None
        else _count_recipe_words(loaded, full, position_limit(whole.config), progress)
    )
    trimmed = trim_vocabulary(whole, full, counts, mode if mode is not None else _mode_of(loaded))
    save_trimmed(Path(out), whole, trimmed.tokenizer)
    return trimmed.report


def _check_word_source(data: Sequence[str | Path], has_recipe: bool, overrides: Sequence[str]) -> None:
    if bool(data) == has_recipe:
        raise RecipeError(
            complain(
                "data files and a recipe are both given" if data else "neither data files nor a recipe is given",
                "one of them says which words are used",
                "Give --data FILE, or --recipe RECIPE",
            )
        )
    if overrides and not has_recipe:
        raise RecipeError(
            complain(
                f"'{overrides[0]}' is given with --data",
                "it would change a recipe, and there is none",
                "Write --data before each file, or remove it",
            )
        )


def _count_recipe_words(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, limit: int | None, progress: Progress | None
) -> NDArray[np.int64]:
    """How often all splits of the recipe's data, as the model reads them, use each word."""
    from seqfit.data.tokenize import prepare_data
    from seqfit.trimming.remap import count_words

    prepared = prepare_data(recipe, tokenizer, SPLITS, position_limit=limit, progress=progress)
    return count_words(prepared, len(tokenizer))


def _mode_of(recipe: Recipe | None) -> Mode:
    mode = None if recipe is None else recipe.model.trim_vocabulary
    return "data" if mode is None else mode


def plan(
    recipe: RecipeLike | Data | None = None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    gpu: str | None = None,
    gpus: int = 1,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
    no_data: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """Memory and time of training by this recipe on a card or on this machine, and the fastest strategy that fits.

    Without a recipe one is guessed from `data` (a path, a DataFrame and the like), `task` and `model`.
    """
    given = read_given(recipe, overrides, data=data, task=task, model=model, command="plan")
    loaded = load_recipe(given.recipe, given.overrides)
    if gpu is not None and gpu.lower() != "cpu":
        from seqfit.hardware.cards import find_card

        find_card(gpu)  # an unknown one is told before torch is imported
    from seqfit.planning.report import find_plan, plan_key, stamp_experience, store_plan

    options: dict[str, Any] = {"gpu": gpu, "gpus": gpus, "lengths": (source_tokens, target_tokens, no_data)}
    if gpu is None:
        from seqfit.hardware.probe import probe_machine

        machine = probe_machine()
        gpus_here = [(found.name, found.free_bytes // 2**30) for found in machine.gpus]
        options["machine"] = (machine.processor, machine.cores, machine.memory_bytes, gpus_here)
        options["experience"] = stamp_experience()
    key = plan_key(loaded, options)
    answer = find_plan(key)
    if answer is None:
        # These import torch: a recipe's mistakes are reported, and stored plans found, before.
        from seqfit.planning.request import Assumed, ask_plan
        from seqfit.planning.target import find_target

        target = find_target(gpu, gpus)
        assumed = Assumed(source_tokens, target_tokens, no_data)
        answer = ask_plan(loaded, target, assumed, progress or (lambda *_: None))
        store_plan(key, answer)
    return answer


def scale(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    nproc: Sequence[int] | None = None,
    ways: Sequence[str] = ("ddp",),
    weak: bool = False,
    steps: int = 5,
    repeats: int = 3,
    gpu: str | None = None,
    upto: int | None = None,
    per_node: int | None = None,
    network: str | None = None,
    progress: Progress | None = None,
) -> Scaling:
    """How this recipe's steps scale over `nproc` processes here, measured, and over cards of a kind, predicted.

    The parameters are the options of `seqfit scale`. With a `gpu` nothing is measured unless `nproc` is given.
    """
    from seqfit.scaling import measure as options
    from seqfit.scaling import report as scaling_report
    from seqfit.scaling.measure import list_groups

    shared = options.read_ways(",".join(ways))
    cluster = options.choose_cluster(gpu, shared, upto=upto, per_node=per_node, network=network)
    asked = options.choose_asked(
        None if nproc is None else ",".join(map(str, nproc)),
        shared,
        steps=steps,
        repeats=repeats,
        weak=weak,
        only_predicts=cluster is not None,
    )
    return scaling_report.scale(
        recipe,
        overrides,
        ways=shared,
        groups=list_groups(recipe, overrides, asked),
        asked=asked,
        cluster=cluster,
        progress=progress or (lambda *_: None),
    )


def calibrate_machine(progress: Progress | None = None) -> Rates:
    """Measure this machine's device; later plans for it use the rates."""
    from seqfit.planning.calibration import calibrate, store_rates

    device, rates = calibrate(progress or (lambda *_: None))
    store_rates(device, rates)
    return rates
