"""`convert`: a Trainer script -> a recipe, where each field comes from, what is not needed, and what was not read.

    per_device_train_batch_size=8          train.batch_examples: 32          8 x 4 x 1 process
    gradient_accumulation_steps=4    ->    strategy.micro_batch_examples: 8
    learning_rate (not given)              train.learning_rate: 5e-05        transformers' default
    logging_dir="logs"                     nothing: --track writes TensorBoard files
    fp16=has_gpu()                         listed as not read, with its line

`trainer_names` has the one table of what each argument becomes. A field that the recipe's own rules refuse is taken out
again and listed, so that nothing is lacking but what the script does not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqfit.conversion.converted import Conversion, NotRead, Taken
from seqfit.conversion.reading import VISIBLE_GPUS, ScriptReading, Setting
from seqfit.conversion.settings import as_number, describe_script
from seqfit.conversion.sources import Locate, is_there, load_table, read_source
from seqfit.errors import RecipeError
from seqfit.recipe import Mistake, read_recipe, trainer_names
from seqfit.validation import find_mistakes
from seqfit.yaml_text import write_flow

# What transformers does where a script says nothing, and a recipe would do something else.
_DEFAULTS = {"per_device_train_batch_size": 8, "learning_rate": 5e-5, "num_train_epochs": 3, "seed": 42}
_LAST = ("dtype", "torch_dtype", "run_name", "data_seed", "shuffle_seed")  # what another argument says better
_PARTS = ("description", "model", "task", "data", "train", "eval", "strategy", "allow", "seed")


def convert(script: str | Path | Mapping[str, Any]) -> Conversion:
    """A mapping has arguments by name, as a file of them has."""
    reading, locate = read_source(script)
    is_file = not isinstance(script, Mapping) and is_there(script)
    name = str(script) if is_file else "the arguments" if isinstance(script, Mapping) else "the command line"
    if reading.kind not in ("", "classifier", "text-to-text"):
        raise RecipeError(
            f"'{name}' trains a {reading.kind}",
            "seqfit trains encoder-decoders, which generate text from text, and classifiers",
            "Convert a script that loads AutoModelForSeq2SeqLM or AutoModelForSequenceClassification",
        )
    _add_defaults(reading)
    fields, options, taken, not_needed = _translate(reading, locate)
    fields = _infer(reading, fields)
    if "strategy.precision" not in fields and not reading.hides_arguments:
        note = (
            "strategy.precision is auto: bf16 on a GPU that has it; strategy.precision=fp32 computes as the script does"
        )
        not_needed = [one for one in not_needed if not one.said.startswith(("fp16=", "bf16="))]
        not_needed.append(Taken("", "fp32, without fp16 or bf16", {}, note))
    recipe, missing = _check(fields, reading)
    written = _flatten_paths(recipe)
    taken = [
        Taken(one.place, one.said, kept, one.note)
        for one in taken
        if (kept := {path: value for path, value in one.changes.items() if path in written or path.startswith("--")})
    ]
    not_read = [NotRead(locate(one.line), one.what, _locate_inside(one.why, locate)) for one in reading.unread]
    return Conversion(
        name, recipe, options, taken, not_needed, not_read, missing, describe_script(reading, name), is_file
    )


def _locate_inside(why: str, locate: Locate) -> str:
    """Lines that a sentence names, in a notebook's cell or another file."""
    return re.sub(r"\bline (\d+)", lambda match: locate(int(match[1])) or match[0], why)


def _add_defaults(reading: ScriptReading) -> None:
    """The example script's own defaults, then the Trainer's."""
    example = load_table("example_scripts.yaml").get(reading.script)
    if example is not None:
        reading.task = reading.task or example["task"]
        reading.kind = reading.kind or ("classifier" if example.get("classifier") else "text-to-text")
        for name, value in example["defaults"].items():
            if not reading.has(name):
                reading.take(name, value, None, f"{name}={write_flow(value)} ({reading.script}'s default)")
        _add_columns(reading)
    steps = reading.settings.get("max_steps")
    has_steps = steps is not None and isinstance(steps.value, int) and steps.value > 0
    unread = {one.what.partition("=")[0].removeprefix("--") for one in reading.unread}
    for name, value in _DEFAULTS.items() if not reading.hides_arguments else ():
        is_given = (
            reading.has(name)
            or name in unread
            or (name.startswith("per_device") and reading.has("per_gpu_train_batch_size"))
        )
        if is_given or (name == "num_train_epochs" and has_steps):
            continue
        reading.take(name, value, None, f"{name}={value} (transformers' default)")
    seen = None if reading.naive_pipeline else reading.visible_gpus
    processes = reading.processes or seen or 1  # one process takes all GPUs that it sees
    reading.settings.setdefault(
        "num_processes",
        Setting("num_processes", processes, None, _describe_processes(reading, processes)),
    )


def _describe_processes(reading: ScriptReading, processes: int) -> str:
    if reading.processes is None and processes > 1:
        return f"{VISIBLE_GPUS} has {processes} GPUs"
    return f"{processes} process{'es' if processes > 1 else ''}"


def _add_columns(reading: ScriptReading) -> None:
    """Columns that an example script finds by the name of a data set of the Hub, and languages in a column."""
    settings = reading.settings
    hub = settings.get("dataset_name")
    title = str(hub.value).rpartition("/")[2] if hub is not None else ""
    if reading.task == "summarize":
        columns = load_table("columns.yaml")["summarization"].get(title)
        for name, column in zip(("text_column", "summary_column"), columns or (), strict=False):
            if not reading.has(name):
                reading.take(name, column, None, f"{name}={column} ({reading.script} knows {title})")
    if reading.task == "translate":
        for name, side in (("source_lang", "source"), ("target_lang", "target")):
            if name in settings:
                code = str(settings[name].value).partition("_")[0]
                reading.take(f"task.{side}", f"{{translation.{code}}}", settings[name].line, f"{name}: its column")
    if reading.task == "classify" and "task_name" in settings:
        columns = load_table("columns.yaml")["glue"].get(str(settings["task_name"].value))
        if columns:
            reading.take(
                "task.source", " ".join(f"{{{one}}}" for one in columns), None, f"task_name: {reading.script}'s columns"
            )


def _translate(
    reading: ScriptReading, locate: Locate
) -> tuple[dict[str, Any], dict[str, Any], list[Taken], list[Taken]]:
    settings = sorted(reading.settings.values(), key=lambda one: one.name in _LAST)
    settings = [as_number(one) for one in settings]
    arguments = {one.name: one.value for one in settings if trainer_names.find_argument(one.name) is not None}
    if arguments.get("lang") is not None and reading.task == "summarize":
        arguments.pop("lang")
    fields: dict[str, Any] = {}
    taken, not_needed = [], []
    for one in settings:
        shown = one.said or f"{one.name}={write_flow(one.value)}"
        argument = trainer_names.find_argument(one.name)
        if argument is None:
            changes: Mapping[str, Any] | str = {one.name: one.value}
        elif not argument.has_field:
            not_needed.append(Taken(locate(one.line), shown, {}, argument.note))
            continue
        else:
            changes = trainer_names.translate_argument(one.name, arguments, {})
        if isinstance(changes, str):
            why = (
                f"{argument.note}. {changes}"
                if argument is not None and argument.note
                else f"no counterpart: {changes}"
            )
            reading.leave(shown, one.line, why)
            continue
        if one.name == "num_processes" and one.value == 1:
            note = (
                "several GPUs that the script sees would multiply the global batch" if reading.processes is None else ""
            )
            not_needed.append(Taken(locate(one.line), "processes: 1", {}, note or "one process"))
            continue
        changes = _as_whole_numbers(changes)
        fresh = {path: value for path, value in changes.items() if path not in fields or path == "allow"}
        for path, value in changes.items():
            if path not in fresh and fields[path] != value and not path.startswith("--"):
                reading.leave(shown, one.line, f"{path} is {write_flow(fields[path])} already")
        for path, value in fresh.items():
            fields[path] = list(dict.fromkeys([*fields.get("allow", []), *value])) if path == "allow" else value
        note = _explain(one, arguments, reading)
        if changes:
            taken.append(Taken(locate(one.line), shown, changes, note))
        else:
            not_needed.append(Taken(locate(one.line), shown, {}, "seqfit does so anyway"))
    options = {path: value for path, value in fields.items() if path.startswith("--")}
    return {path: value for path, value in fields.items() if path not in options}, options, taken, not_needed


def _as_whole_numbers(changes: Mapping[str, Any]) -> dict[str, Any]:
    """3.0 epochs are 3."""
    return {
        path: int(value)
        if isinstance(value, float) and value.is_integer() and value < 1e9 and "epochs" in path
        else value
        for path, value in changes.items()
    }


def _explain(setting: Setting, arguments: Mapping[str, Any], reading: ScriptReading) -> str:
    if setting.name in ("per_device_train_batch_size", "per_gpu_train_batch_size"):
        accumulated, processes = arguments.get("gradient_accumulation_steps", 1), arguments.get("num_processes", 1)
        return f"{setting.value} x {accumulated} x {processes} process{'es' if processes > 1 else ''}"
    return ""


def _infer(reading: ScriptReading, fields: dict[str, Any]) -> dict[str, Any]:
    """The task, the kind of model and its labels, which a script says by what it calls."""
    if reading.kind == "classifier":
        fields["model.kind"] = "classifier"
    fields.setdefault("task.name", reading.task or _guess_task(reading, fields))
    if fields["task.name"] in ("classify", "multilabel") and "task.labels" not in fields:
        is_local = "data.path" in fields
        if reading.labels is not None:
            fields["task.labels"] = reading.labels
        elif reading.label_count is not None and is_local:
            fields["task.labels"] = [str(number) for number in range(reading.label_count)]
    return fields


def _guess_task(reading: ScriptReading, fields: Mapping[str, Any]) -> str:
    if reading.kind == "classifier":
        return "classify"
    prefix = f"{fields.get('task.prefix', '')} {fields.get('task.source', '')}".lower()
    metrics = fields.get("eval.metrics", [])
    columns = f"{fields.get('task.source', '')} {fields.get('task.target', '')}".lower()
    if re.search(r"\bsummar", prefix) or re.search(r"\{(\w*summar\w*|highlights|article|dialogue)\}", columns):
        return "summarize"
    if "translat" in prefix or "{translation." in columns or "task.source_language" in fields or "bleu" in metrics:
        return "translate"
    if (
        re.search(r"\{(\w*answers?\w*)(\.\w+)?\}", str(fields.get("task.target", "")).lower())
        and "{question" in columns
    ):
        return "qa"
    return "summarize" if "rouge" in metrics else "generate"


def _check(fields: dict[str, Any], reading: ScriptReading) -> tuple[dict[str, Any], list[str]]:
    """The recipe without what its rules refuse, which is listed, and what it needs and the script does not say."""
    for _ in range(4):
        recipe = _order(trainer_names.nest_fields(fields))
        checked = read_recipe(recipe)
        mistakes = [*checked.mistakes, *(one for one in find_mistakes(checked.values) if one not in checked.mistakes)]
        refused = [path for one in mistakes if (path := _field_of(one, fields)) is not None]
        if not refused:
            break
        for one in mistakes:
            path = _field_of(one, fields)
            if path in fields:
                reading.leave(f"{path}={write_flow(fields[path])}", _line_of(reading, path), one.sentence)
                del fields[path]
    missing = [_describe_missing(one) for one in mistakes]
    lacks_labels = fields["task.name"] in ("classify", "multilabel") and "task.labels" not in fields
    if lacks_labels and not any(one.startswith("task.labels") for one in missing):
        missing.append(_describe_missing(Mistake(("task", "labels"), "needed, but the script does not name them.")))
    return recipe, missing


def _field_of(mistake: Mistake, fields: Mapping[str, Any]) -> str | None:
    """The field that a mistake is about, if it is there to be taken out."""
    path = ".".join(map(str, mistake.path))
    while path:
        if path in fields:
            return path
        path = path.rpartition(".")[0]
    return None


def _line_of(reading: ScriptReading, path: str) -> int | None:
    for one in reading.settings.values():
        if one.name == path:
            return one.line
        if trainer_names.find_argument(one.name) is not None:
            found = trainer_names.translate_argument(one.name, {one.name: one.value}, {})
            if isinstance(found, dict) and path in found:
                return one.line
    return None


def _describe_missing(mistake: Mistake) -> str:
    examples = {
        "model": "model.name: google/flan-t5-base",
        "task.source": "task.source: '{text}'",
        "task.target": "task.target: '{summary}'",
        "task.labels": "task.labels: [negative, positive]",
        "data": "data.path: train.csv",
    }
    path = ".".join(map(str, mistake.path))
    example = f" Write {examples[path]}" if path in examples else ""
    return f"{mistake}{example}".replace("..", ".")


def _order(recipe: dict[str, Any]) -> dict[str, Any]:
    return {part: recipe[part] for part in _PARTS if part in recipe}


def _flatten_paths(recipe: Mapping[str, Any], above: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in recipe.items():
        path = f"{above}.{key}" if above else str(key)
        found |= {path} | (_flatten_paths(value, path) if isinstance(value, Mapping) else set())
    return found
