"""The input of a command or a public function, a recipe or data that one is guessed from, and `describe_data`.

In: a command-line argument or a Python object, and the options --data, --task and --model. Out: `Given`, a recipe for
`load_recipe` in either case.

    read_given("demo", ["train.steps=3"])                      Given("demo", ["train.steps=3"], name="demo")
    read_given("my.csv", model="google/mt5-small", task="qa")  Given({"model": ..., "task": ...}, name="my", notes=...)
    read_given(None, data=frame, model=..., task="qa")         the same, with data.path in the cache
    read_given("train.py", command="plan")                     Given({...}, name="train", script=...), converted
    read_given("google/flan-t5-base", command="plan")          Given({"model": ..., "task": ...}, without_data=True)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seqfit import hub
from seqfit.conversion import Conversion, convert
from seqfit.errors import DataError, RecipeError, SeqfitError
from seqfit.inspection.guess import guess_for_model, guess_recipe
from seqfit.inspection.in_memory import is_in_memory, store_data
from seqfit.inspection.local_models import is_folder_of_models, is_tokenizer_cached
from seqfit.inspection.model_choice import ModelChoice, choose_model, find_device_memory
from seqfit.inspection.text_facts import count_training_rows, read_text_facts
from seqfit.model_configs import find_known_model
from seqfit.recipe import Recipe, SourceRecipe, apply_overrides, is_script, resolve
from seqfit.system import quote
from seqfit.validation import load_checked_recipe

if TYPE_CHECKING:
    from seqfit.inspection.report import DataReport, HumanBaseline
    from seqfit.inspection.text_rows import Ask
    from seqfit.progress import Progress

Data: TypeAlias = Any
"""A path, a Hub name, a list of dicts, a pandas or polars DataFrame, a pyarrow Table, a datasets.Dataset(Dict)."""
RecipeLike: TypeAlias = Recipe | str | Path | Mapping[str, Any]
_ADAFACTOR = "train.optimizer.name=adafactor"
_ADAFACTOR_RATE = "train.learning_rate=1e-3"  # T5's own for fine-tuning; an encoder keeps its low rate
EXAMPLE_MODEL = "google/mt5-small"  # for messages; it knows more than a hundred languages
# Fields of a source: what its rows mean, and where they are.
_SHAPE = {"each", "turns", "group", "split_column"}
_PLACE = {"label", "hub", "hub_config", "path", "splits", "ids", "limit", "balance", "files"}


@dataclass(frozen=True)
class AssumedData:
    """In the place of tokenized rows; lengths are means, estimated."""

    rows: int
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True)
class Given:
    """A recipe, or the path of one, with overrides; `data` is the path of the data that it was guessed from."""

    recipe: RecipeLike
    overrides: tuple[str, ...]
    name: str  # for a run directory
    data: str | None = None
    task: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    script: Conversion | None = None  # the Trainer script that the recipe was converted from
    without_data: bool = False  # a model alone, which can only be planned
    choice: ModelChoice | None = None  # of the model, where none was given
    assumed: AssumedData | None = None  # for a plan, where there is no tokenizer to count tokens

    @property
    def place(self) -> Path | None:
        """The path of the recipe, which may be a run directory."""
        return Path(self.recipe) if isinstance(self.recipe, str | Path) else None

    def format_command(self, name: str) -> str:
        """A subcommand with everything that is given, and an example model if none is. A script is converted first."""
        if self.script is not None:
            file = f"{self.name}.yaml"
            converted = " ".join(map(quote, ["seqfit", "convert", self.script.name, "-o", file]))
            return f"{converted} && {' '.join(map(quote, ['seqfit', name, file, *self.overrides]))}"
        argv = ["seqfit", name]
        if self.without_data:
            argv += ["--data", "FILE", "--model", str(self.model)]
        elif self.data is None:
            argv += [str(self.recipe)] if self.place is not None else ["RECIPE"]
        else:
            argv += ["--data", self.data] if name == "train" else [self.data]
            argv += [*(["--task", self.task] if self.task else []), "--model", self.model or EXAMPLE_MODEL]
        return " ".join(map(quote, [*argv, *self.overrides]))


def read_given(
    recipe: RecipeLike | Given | Data | None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    command: str = "train",
    gpus: Sequence[str] = (),
) -> Given:
    """The input of a command; without a recipe one is guessed. A plan may be for a model alone.

    Without a model one is chosen that fits the `gpus`, or this machine; to train, it has to be here already.
    """
    if isinstance(recipe, Given):
        return recipe
    if command == "plan":
        recipe, model = _take_model(recipe, model)
        if recipe is None and data is None and model is not None:
            values = guess_for_model(model, task)
            notes = () if task is not None else (f"task {values['task']['name']} (--task)",)
            return Given(values, tuple(overrides), "model", None, task, model, notes, without_data=True)
    found = find_given(recipe, overrides, data=data, task=task, model=model, command=command)
    folder = None if found.model is None else Path(found.model).expanduser()
    if found.data is not None and (folder is None or is_folder_of_models(folder)):
        found = _choose_model(found, command, gpus, folder)
    given = guess_given(found)
    if given.choice is not None:
        kept = [note for note in given.notes if not note.startswith("model: ")]  # its kind, and how that is known
        given = replace(given, notes=(*kept, f"model {given.choice.describe()}"))
    return _estimate_lengths(given) if command == "plan" and given.data is not None else given


def _choose_model(found: Given, command: str, gpus: Sequence[str], folder: Path | None) -> Given:
    """The same with a model, and with the optimizer that it fits with."""
    open_choice = replace(found, model=None)
    given = guess_given(open_choice)
    recipe = load_for_description(given)
    facts = read_text_facts(recipe)

    def take(choice: ModelChoice) -> Given:
        stated = any(word.startswith("train.optimizer") for word in found.overrides)
        is_replaced = choice.optimizer == "adafactor" and not stated
        adafactor = (_ADAFACTOR, *(() if choice.is_encoder else (_ADAFACTOR_RATE,))) if is_replaced else ()
        overrides = (*adafactor, *found.overrides)  # the user's own come last and win
        task = recipe.task.name
        return replace(open_choice, overrides=overrides, task=task, model=choice.location, choice=choice)

    return take(
        choose_model(
            recipe.task.name,
            facts,
            find_device_memory(gpus),
            data=str(found.data),
            name_it=lambda choice: take(choice).format_command(command),
            folder=folder,
            may_download=command != "train",
        )
    )


def _estimate_lengths(given: Given) -> Given:
    """With what a plan needs of the texts, if no tokenizer can count their tokens."""
    model = str(given.model)
    if hub.is_path(model) or is_tokenizer_cached(model):
        return given
    hub.use_hub()
    if hub.describe_absence(model) is None:
        return given
    recipe = load_for_description(replace(given, model=None))
    facts = read_text_facts(recipe)
    source, target = facts.source, facts.target
    note = (
        f"lengths estimated from characters, because the tokenizer of {model} is not downloaded: {source.mean} source "
        f"and {target.mean} target tokens on average, at most {source.longest} and {target.longest}"
    )
    assumed = AssumedData(count_training_rows(recipe), source.mean, target.mean)
    return replace(given, assumed=assumed, notes=(*given.notes, note))


def _take_model(recipe: RecipeLike | Data | None, model: str | None) -> tuple[RecipeLike | Data | None, str | None]:
    """A model may stand in the place of a recipe, and a known one may lack its owner."""
    if isinstance(recipe, str | Path) and not is_script(recipe):
        found = resolve(recipe, ("recipe", "run", "data", "folder", "model", "known", "hub"), "plan")
        if found.kind in ("model", "known") and model is not None:
            raise RecipeError(
                f"'{recipe}' is a model, and --model is {model}", "A plan is for one model", "Leave one of them out"
            )
        if found.kind in ("model", "known") or (found.kind == "hub" and model is None):
            return None, str(found.path)
    known = None if model is None or Path(model).exists() else find_known_model(model)
    return recipe, model if known is None else known.name


def find_given(
    recipe: RecipeLike | Data | None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    command: str = "train",
) -> Given:
    """Like `read_given`, but only locates data: nothing is guessed, and no model is needed yet."""
    if command == "plan" and data is None and isinstance(recipe, str | Path) and is_script(recipe):
        conversion = convert(recipe)
        notes = (conversion.describe(),)
        return Given(conversion.recipe, tuple(overrides), Path(recipe).stem, notes=notes, script=conversion)
    if data is None and recipe is not None and _is_data(recipe, command, has_model=model is not None):
        data, recipe = recipe, None
    if data is not None and recipe is not None:
        raise RecipeError(
            f"a recipe ({recipe}) and data are given",
            "A recipe names its own data; data without a recipe is for guessing one",
            "Leave one of them out, or change the recipe's data with data.path=FILE",
        )
    if data is not None:
        named, _ = apply_overrides({}, [word for word in overrides if word.startswith("model.")])
        model = model or named.get("model", {}).get("path") or named.get("model", {}).get("name")
        if isinstance(data, str | Path):
            return Given({}, tuple(overrides), Path(data).stem, str(data), task, model)
        stored = store_data(data)
        return Given({}, (f"data.label={stored.label}", *overrides), stored.label, str(stored.path), task, model)
    if recipe is None or task is not None or model is not None:
        raise RecipeError(
            "no recipe is given" if recipe is None else "a recipe is given together with --task or --model",
            f"The command {command} takes a recipe, or data with --model and --task",
            "Name a recipe ('seqfit ls' lists them) and change it with overrides (model.name=NAME), or use --data",
        )
    name = Path(recipe).stem if isinstance(recipe, str | Path) else "run"
    return Given(recipe, tuple(overrides), name)


def guess_given(found: Given) -> Given:
    """The same, if it is a recipe; else one is guessed from its data."""
    if found.data is None:
        return found
    guess = guess_recipe(found.data, found.task, found.model, found.overrides)
    task = found.task or guess.recipe["task"]["name"]
    return replace(found, recipe=guess.recipe, task=task, notes=tuple(guess.notes))


def replace_data(recipe: Recipe, data: Data, split: str) -> tuple[list[str], str]:
    """Overrides that make all rows of other data the `split`, unless it has its own splits, and a label for reports."""
    source = recipe.sources[0]
    if is_in_memory(data):
        stored = store_data(data if isinstance(data, Mapping) else {split: data})
        values = source.model_dump(include=_SHAPE, exclude_defaults=True) | {"path": str(stored.path)}
        label = stored.label
    else:
        path = resolve(data, ("data", "folder"), "evaluate").path.resolve()
        values = source.model_dump(exclude=_PLACE, exclude_defaults=True, mode="json")
        values |= {"path": str(path)} if path.is_dir() else {"path": str(path.parent), "splits": {split: path.name}}
        label = path.name
    values |= {"label": label, "holdout": {"validation": 0, "test": 0}}
    return [f"data={json.dumps(values, ensure_ascii=False)}"], label


def _is_data(given: object, command: str, *, has_model: bool) -> bool:
    """A path of data, or data itself. A Hub name is data if a model is given, or for `seqfit data`."""
    if isinstance(given, Recipe):
        return False
    if not isinstance(given, str | Path):
        return is_in_memory(given) or not isinstance(given, Mapping)
    hub: tuple[Literal["hub"], ...] = ("hub",) if has_model or command == "data" else ()
    return resolve(given, ("recipe", "run", "data", "folder", *hub), command).kind not in ("recipe", "run")


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
    from seqfit.inspection import describe

    found = find_given(data, overrides, task=task, model=model, command="data")
    try:
        given = guess_given(found)
        recipe = load_for_description(given)
    except SeqfitError as error:
        if found.data is None:
            raise
        place = {"path" if Path(found.data).expanduser().exists() else "hub": found.data}
        values, _ = apply_overrides({"data": place}, [one for one in found.overrides if one.startswith("data.")])
        return _describe_columns([SourceRecipe.model_validate(values["data"])], error, found)
    try:
        tokenizer = limit = None
        if found.data is None or found.model is not None:
            from seqfit.model import load_position_limit, load_tokenizer  # imports torch, so only for a valid recipe

            tokenizer, limit = load_tokenizer(recipe.model), load_position_limit(recipe.model)
        report = describe.describe_recipe_data(recipe, tokenizer, position_limit=limit, rows=rows, progress=progress)
    except DataError as error:
        return replace(_describe_columns(recipe.sources, error, given), task=recipe.task.name, guessed=given.notes)
    return replace(report, guessed=given.notes, command=given.format_command("train"))


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
    recipe = load_for_description(guess_given(found))
    return run_tryout(recipe, rows, ask)


def load_for_description(given: Given) -> Recipe:
    """The recipe; one that was guessed without a model names an example, which is never loaded."""
    values = given.recipe
    if given.data is not None and given.model is None and isinstance(values, Mapping):
        values = dict(values) | {"model": {"name": EXAMPLE_MODEL} | dict(values.get("model", {}))}
    return load_checked_recipe(values, given.overrides)


def _describe_columns(sources: Sequence[SourceRecipe], error: SeqfitError, given: Given) -> DataReport:
    """Columns and first rows of data for which there is no recipe; if its rows can't be read either, the error."""
    from seqfit.inspection import describe

    try:
        return replace(describe.describe_columns_only(sources, str(error)), command=given.format_command("train"))
    except SeqfitError:
        raise error from None
