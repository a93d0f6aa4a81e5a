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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.conversion.reading import ScriptReading, ScriptSettings, Setting
from seqfit.conversion.sources import Locate, is_there, load_table, read_source
from seqfit.errors import RecipeError
from seqfit.recipe import Mistake, read_recipe, trainer_names
from seqfit.system import quote
from seqfit.validation import find_mistakes
from seqfit.yaml_text import write_flow, write_yaml

# What transformers does where a script says nothing, and a recipe would do something else.
_DEFAULTS = {"per_device_train_batch_size": 8, "learning_rate": 5e-5, "num_train_epochs": 3, "seed": 42}
_NUMBERS = re.compile(
    r"(_steps|_epochs|_size|_limit|_rate|_decay|_ratio|_norm|_factor|_beams|_length|_patience|_epsilon|_beta[12])$|^seed$"
)
_LAST = ("dtype", "torch_dtype", "run_name", "data_seed", "shuffle_seed")  # what another argument says better
_PARTS = ("description", "model", "task", "data", "train", "eval", "strategy", "allow", "seed")


@dataclass(frozen=True)
class Taken:
    """One setting of the script: where, what it says, and what to write, or why nothing has to be."""

    place: str
    said: str
    changes: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class NotRead:
    place: str
    what: str
    why: str


@dataclass(frozen=True)
class Conversion:
    name: str
    recipe: dict[str, Any]
    options: dict[str, Any]  # of `seqfit train`, such as --out
    taken: list[Taken]
    not_needed: list[Taken]
    not_read: list[NotRead]
    missing: list[str]
    script: ScriptSettings
    is_file: bool = True

    def describe(self) -> str:
        """One sentence for whoever uses the recipe at once."""
        counts = f"{len(self.taken)} settings taken, {len(self.not_read)} not read or not carried over"
        return f"the recipe, from {self.name}: {counts}; they are listed by: seqfit convert {quote(self.name)}"


def convert(script: str | Path) -> Conversion:
    reading, locate = read_source(script)
    is_file = is_there(script)
    name = str(script) if is_file else "the command line"
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
        name, recipe, options, taken, not_needed, not_read, missing, _describe_script(reading, name), is_file
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
    processes = reading.processes or 1
    reading.settings.setdefault(
        "num_processes",
        Setting("num_processes", processes, None, f"{processes} process{'es' if processes > 1 else ''}"),
    )


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
    settings = [_as_number(one) for one in settings]
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
                "several GPUs that one process sees would multiply the global batch"
                if reading.processes is None
                else ""
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


def _as_number(setting: Setting) -> Setting:
    """gradient_accumulation_steps=True counts as 1, learning_rate="2e-5" as a number."""
    value, said = setting.value, setting.said or f"{setting.name}={write_flow(setting.value)}"
    argument = trainer_names.find_argument(setting.name)
    if argument is None or argument.is_flag or not _NUMBERS.search(setting.name):
        return setting
    if isinstance(value, bool):
        return Setting(setting.name, int(value), setting.line, f"{said} ({value} counts as {int(value)})")
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return setting
        return Setting(
            setting.name,
            int(number) if number.is_integer() and "e" not in value.lower() else number,
            setting.line,
            said,
        )
    return setting


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


# What transformers 5 no longer has: a script that uses one of them runs with an earlier version.
BEFORE_5 = (
    *("evaluation_strategy", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "no_cuda", "use_mps_device"),
    *("fp16_opt_level", "fp16_backend", "half_precision_backend", "adafactor", "group_by_length", "parallelize"),
    *("overwrite_output_dir", "include_inputs_for_metrics", "save_safetensors"),
)


def _describe_script(reading: ScriptReading, name: str) -> ScriptSettings:
    given = {one: _as_number(setting).value for one, setting in reading.settings.items()}
    optimizer = "adafactor" if given.get("adafactor") is True else str(given.get("optim", ""))
    pads_both = given.get("pad_to_max_length") is True and bool(reading.script)  # as the example scripts do
    older = [f"{one}=" for one in BEFORE_5 if one in given]
    return ScriptSettings(
        name=name,
        padding="max_length" if given.get("pad_to_max_length") is True else reading.padding,
        target_padding="max_length" if pads_both else reading.target_padding,
        pad_multiple=given.get("pad_to_multiple_of") or 1,
        max_source_tokens=given.get("max_source_length", given.get("max_seq_length", given.get("max_length"))),
        max_target_tokens=given.get("max_target_length", given.get("max_answer_length")),
        precision="bf16" if given.get("bf16") is True else "fp16" if given.get("fp16") is True else "fp32",
        weights=str(given.get("dtype", given.get("torch_dtype", ""))).removeprefix("torch."),
        attention=str(given.get("attn_implementation", "")),
        per_device_examples=given.get("per_device_train_batch_size", given.get("per_gpu_train_batch_size", 8)),
        accumulation=given.get("gradient_accumulation_steps", 1),
        processes=reading.processes,
        visible_gpus=reading.visible_gpus,
        checkpointing=given.get("gradient_checkpointing") is True,
        optimizer=optimizer,
        sharding=next((one for one in ("deepspeed", "fsdp") if given.get(one)), ""),
        quantized_bits=reading.quantized_bits,
        naive_pipeline=reading.naive_pipeline,
        sorts_by_length=given.get("group_by_length") is True
        or given.get("train_sampling_strategy") == "group_by_length",
        before_5=next(iter(older), reading.before_5),
    )


def format_conversion(conversion: Conversion, file: str = "") -> str:
    """The whole report: what was taken, what is not needed, what was not read, what is missing, and what comes next."""
    lines = [f"{conversion.name} -> {file}" if file else conversion.name, "", "taken:"]
    for one in conversion.taken:
        written = ", ".join(
            f"{path}: {_shown(value)}" if not path.startswith("--") else f"{path} {value}"
            for path, value in one.changes.items()
        )
        lines.append(f"  {_said(one.place, one.said)}  ->  {written}{f'  ({one.note})' if one.note else ''}")
    rows = {
        "no field needed:": [(one.place, one.said, one.note) for one in conversion.not_needed],
        "not read, or not carried over:": [(one.place, one.what, one.why) for one in conversion.not_read],
    }
    for title, listed in rows.items():
        lines += ["", title, *(f"  {_said(place, what)}: {why}" for place, what, why in listed)] if listed else []
    if conversion.missing:
        lines += ["", "missing, to be written into the recipe:", *(f"  {one}" for one in conversion.missing)]
    if file and conversion.missing:
        lines += ["", f"next: write what is missing into {file}, then: seqfit validate {quote(file)}"]
    elif file:
        shown = quote(file)
        options = "".join(
            f" {name} {quote(str(value))}" if value is not True else f" {name}"
            for name, value in conversion.options.items()
            if name != "--resume"
        )
        lines += [
            "",
            f"next: seqfit validate {shown}; seqfit plan {shown} --gpu rtx3090; seqfit train {shown}{options}",
        ]
        if "strategy" in conversion.recipe:
            lines.append("'~strategy' after the recipe leaves precision, micro-batches and padding to the plan")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) and ("\n" in value or value != value.strip()) else write_flow(value)


def _said(place: str, said: str) -> str:
    return f"{place}: {said}" if place else said


def write_conversion(conversion: Conversion, file: Path) -> None:
    """The recipe as a file, with what it lacks as comments; an existing file is never overwritten."""
    comments = [
        f"# Converted from {conversion.name} by 'seqfit convert'.",
        *(f"# missing: {one}" for one in conversion.missing),
    ]
    comments += [
        f"# not read: {_said(one.place, one.what)}: {one.why}".replace("\n", " ") for one in conversion.not_read
    ]
    text = "\n".join([*comments, write_yaml(conversion.recipe)])
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise RecipeError(f"'{file}' exists", "a file is never overwritten", "Name another with -o NEW.yaml") from error
    except OSError as error:
        raise RecipeError(
            f"'{file}': {error.strerror}", "the recipe is written there", "Name another place with -o"
        ) from error
