"""Every mistake of a recipe that shows without loading model or data, reported together.

In: where a recipe is, and overrides. Out: the recipe, or one `RecipeError` with a line for each mistake:

    sede: 1                          mine.yaml has 3 mistakes:
    task: {source: "{question"}  ->    sede: unknown field. Did you mean 'seed'?
    allow: [int8]                      task.source: The template '{question' has a single '{'. ...
                                       allow: 'int8' is given. The lossy strategies are bf16, fp16. ...

The schema is checked by `recipe`; templates, metrics and strategies by their packages, each on the values as they were
read, so that a mistake in one part does not hide those of another. What the schema refuses is reported by the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seqfit import hub
from seqfit.errors import ModelError, format_error
from seqfit.hardware import probe_machine
from seqfit.metrics import find_metric_mistakes
from seqfit.recipe import Mistake, Recipe, TrainRecipe, read_recipe
from seqfit.strategy import LOSSY, find_strategy_mistakes, load_strategy
from seqfit.tasks import default_metrics_of, find_task_mistakes


def load_checked_recipe(where: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """As `load_recipe`; templates, metrics and strategy are checked as well."""
    return load_noted_recipe(where, overrides)[0]


def load_noted_recipe(
    where: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str] = ()
) -> tuple[Recipe, list[str]]:
    """The same, and sentences about values that were changed on reading."""
    reading = read_recipe(where, overrides)
    return reading.require(find_mistakes(reading.values)), reading.notes


def check_model_available(recipe: Recipe) -> None:
    """Reports a missing folder, or a name that is neither in the Hub's cache nor can be downloaded, before torch is
    imported."""
    check_model_folders(recipe)
    name = recipe.model.location
    if recipe.model.path is not None or hub.is_path(name):
        return
    from huggingface_hub import try_to_load_from_cache

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
    except ValueError:  # not a valid name on the Hub: loading it reports that
        return
    hub.use_hub()
    given = hub.describe_absence(name)
    if given is not None:
        raise ModelError(given, hub.RULE, hub.ADVICE)


def check_model_folders(recipe: Recipe) -> None:
    model = recipe.model
    field = "model.path" if model.path is not None else "model.name"
    for name, location in ((field, model.location), ("model.tokenizer", model.tokenizer)):
        is_local = location is not None and (name == "model.path" or hub.is_path(location))
        if is_local and not Path(str(location)).expanduser().is_dir():
            raise ModelError(
                f"{name} is '{location}', and there is no such folder",
                "a local model or tokenizer is a folder in Hugging Face layout",
                f"Set {name} to one, or model.name to a name on the Hub",
            )


def find_mistakes(values: Mapping[str, Any]) -> list[Mistake]:
    """What is wrong with a recipe's values apart from the schema, which may refuse some of them."""
    task, evaluation, model, train = (_mapping(values.get(part)) for part in ("task", "eval", "model", "train"))
    allow = values.get("allow", Recipe.DEFAULT_ALLOW)
    return [
        *find_task_mistakes(task),
        *_find_metric_mistakes(evaluation, task.get("name")),
        *_find_strategy_mistakes(values.get("strategy"), allow, values.get("train", {})),
        *_find_head_mistakes(model, task.get("name"), train),
        *_find_trim_mistakes(model, allow),
    ]


def _find_metric_mistakes(evaluation: Mapping[str, Any], task_name: object) -> list[Mistake]:
    metrics, best = evaluation.get("metrics"), evaluation.get("best")
    if _is_string_list(metrics) and metrics:
        return find_metric_mistakes(metrics, best if isinstance(best, str) else None)
    defaults = default_metrics_of(task_name) if isinstance(task_name, str) else None
    if metrics or defaults is None or not isinstance(best, str):
        return []
    return find_metric_mistakes(defaults, best)


def _find_strategy_mistakes(strategy: Any, allow: Any, train: Any) -> list[Mistake]:
    readable = strategy if isinstance(strategy, str | Mapping) else None
    try:
        readable_train = TrainRecipe.model_validate(train)
    except ValidationError:  # reported by the schema; conflicts with it are not known yet
        readable_train = None
    return find_strategy_mistakes(readable, allow if _is_string_list(allow) else LOSSY, readable_train)


def _find_head_mistakes(model: Mapping[str, Any], task_name: object, train: Mapping[str, Any]) -> list[Mistake]:
    """Parts that the loss of a head does not have: only a softmax over classes can be smoothed."""
    if model.get("kind") != "classifier":
        return []
    lacking = ["z_loss"] if task_name == "classify" else ["label_smoothing", "z_loss"]
    return [
        Mistake(
            ("train", name),
            format_error(
                f"{train[name]} is given, and model.kind is classifier for task.name={task_name}",
                "the loss of this head has no such part",
                f"Remove train.{name}",
            ),
        )
        for name in lacking
        if train.get(name)
    ]


def _find_trim_mistakes(model: Mapping[str, Any], allow: Any) -> list[Mistake]:
    """A trimmed softmax is another loss: the tokens removed would have had their share of the probability."""
    if model.get("trim_vocabulary") is None or not _is_string_list(allow) or "trim" in allow:
        return []
    sentence = format_error(
        f"'{model['trim_vocabulary']}' is given, but the recipe allows {allow}",
        "a trimmed vocabulary changes the loss and is used only where the recipe allows it",
        f"Add it with 'allow=[{', '.join([*allow, 'trim'])}]', or remove model.trim_vocabulary",
    )
    return [Mistake(("model", "trim_vocabulary"), sentence)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def runs_on_cpu(recipe: Recipe) -> bool:
    """As training chooses the device, without torch."""
    device = load_strategy(recipe).device
    return device == "cpu" or (device == "auto" and not probe_machine().gpus)
