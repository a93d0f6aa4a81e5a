"""Arguments of transformers' Trainer and its example scripts: each with our field, or the reason why there is none.

In: Trainer arguments that somebody gave, and the recipe's values. Out: for each a sentence, and what to write instead:

    per_device_train_batch_size=8, gradient_accumulation_steps=4   ->   train.batch_examples=32
                                                                        strategy.micro_batch_examples=8
    num_train_epochs=3, and the recipe has train.steps: 250        ->   train.epochs=3 train.steps=null
    push_to_hub=true                                               ->   no field, and why

The table is trainer_names.yaml. A test walks the fields of Seq2SeqTrainingArguments, so that it stays complete, and
applies every example to a recipe, so that no answer names a field that does not exist.
trainer_page.py makes docs/coming-from-trainer.md of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from seqfit.errors import format_error
from seqfit.hub import is_path
from seqfit.recipe.mistakes import report_mistakes
from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.schema import Recipe
from seqfit.system import quote
from seqfit.yaml_text import read_yaml, write_flow, write_yaml

Changes = dict[str, Any]  # {'train.epochs': 3, '--out': 'runs/x'}: fields and options of ours with their values


@dataclass(frozen=True)
class TrainerArgument:
    """One row of the table; trainer_names.yaml says what its parts mean."""

    rule: Mapping[str, Any]
    is_flag: bool

    @property
    def note(self) -> str:
        if self.has_field:
            return str(self.rule.get("note", ""))
        return str(self.rule.get("none") or f"always on: {self.rule['always']}")

    @property
    def has_field(self) -> bool:
        return "none" not in self.rule and "always" not in self.rule

    @property
    def examples(self) -> list[Any]:
        return list(self.rule.get("examples", self.rule.get("values", ())))


@dataclass(frozen=True)
class TrainerCall:
    value: Any
    arguments: Mapping[str, Any]
    recipe: Mapping[str, Any]

    def field(self, path: str) -> Any:
        found: Any = self.recipe
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def count_steps(self, path: str, value: Any) -> Changes | str:
        """Steps; what lies between 0 and 1 is a share of the run's."""
        if value >= 1 or value == 0:
            return {path: int(value)}
        stated = self.arguments.get("max_steps", 0)
        steps = stated if stated > 0 else None if "num_train_epochs" in self.arguments else self.field("train.steps")
        if steps is None:
            return f"Set {path} to {value:g} times the number of steps of the run"
        return {path: max(1, round(value * steps))}


@cache
def load_sections() -> dict[str, dict[str, TrainerArgument]]:
    text = resources.files("seqfit.recipe").joinpath("trainer_names.yaml").read_text("utf-8")
    return {
        title: {
            name.removesuffix("?"): TrainerArgument(rule, name.endswith("?"))
            for names, rule in rows.items()
            for name in names.split()
        }
        for title, rows in read_yaml(text)[0].items()
    }


def find_argument(name: object) -> TrainerArgument | None:
    return next((rows[name] for rows in load_sections().values() if isinstance(name, str) and name in rows), None)


def translate_argument(name: str, arguments: Mapping[str, Any], recipe: Mapping[str, Any]) -> Changes | str:
    """What to write instead of an argument, {} where nothing has to be, or what to do about a value like this."""
    argument = find_argument(name)
    assert argument is not None
    rule, call = argument.rule, TrainerCall(arguments[name], arguments, recipe)
    try:
        if "by" in rule:
            return _allowing(_FUNCTIONS[rule["by"]](call), call)
        if "write" in rule:
            displaced = rule.get("without")
            extra = {displaced: None} if displaced is not None and call.field(displaced) is not None else {}
            return {**_fill(rule["write"], call.value), **extra}
        if "values" in rule:
            known = rule["values"]
            value = str(call.value).removeprefix("torch.") if isinstance(call.value, str) else call.value
            if value not in known:
                return f"Choose one of {', '.join(map(write_flow, known))}"
            return _allowing(known[value], call)
    except (AttributeError, TypeError, ValueError):  # a value that the Trainer would not take either
        return "Correct its value"
    return {}


def _fill(part: Any, value: Any) -> Any:
    """{'--out': 'runs/$'} and 'mine' -> {'--out': 'runs/mine'}."""
    if isinstance(part, Mapping):
        return {key: _fill(item, value) for key, item in part.items()}
    if isinstance(part, list):
        return [_fill(item, value) for item in part]
    return value if part == "$" else part.replace("$", str(value)) if isinstance(part, str) else part


def _allowing(changes: Changes | str, call: TrainerCall) -> Changes | str:
    """With the recipe's whole `allow:` list in place of the lossy kind that is needed in addition."""
    if isinstance(changes, str) or "allow" not in changes:
        return changes
    allowed, kind = call.field("allow") or Recipe.DEFAULT_ALLOW, changes["allow"]
    rest = {path: value for path, value in changes.items() if path != "allow"}
    return rest if kind in allowed else {**rest, "allow": [*allowed, kind]}


def _batch(call: TrainerCall) -> Changes | str:
    """Both arguments together; the accumulation by itself divides the recipe's own global batch."""
    per_device = call.arguments.get("per_device_train_batch_size", call.arguments.get("per_gpu_train_batch_size"))
    accumulated = call.arguments.get("gradient_accumulation_steps", 1)
    if per_device is not None:
        examples = per_device * accumulated * call.arguments.get("num_processes", 1)
        return {"train.batch_examples": examples, "strategy.micro_batch_examples": int(per_device)}
    examples = call.field("train.batch_examples")
    if examples is None:
        return f"Set train.batch_examples to {accumulated} times strategy.micro_batch_examples"
    return {"strategy.micro_batch_examples": -(-examples // accumulated)}


def _schedule_constants(call: TrainerCall) -> Changes | str:
    ours = {"min_lr_rate": "floor", "factor": "factor", "patience": "patience"}
    if not set(call.value) <= set(ours):
        return f"Only {', '.join(ours)} have a counterpart"
    return {f"train.schedule.{ours[name]}": value for name, value in call.value.items()}


def _bf16(call: TrainerCall) -> Changes | str:
    if call.value:
        return {"strategy.precision": "bf16", "allow": "bf16"}
    return {} if call.arguments.get("fp16") else {"strategy.precision": "fp32"}


def _evaluation(call: TrainerCall) -> Changes | str:
    if call.value == "steps":
        every = call.arguments.get("eval_steps") or call.arguments.get("logging_steps") or 500
        return call.count_steps("eval.every_steps", every)
    if call.value == "epoch":
        return {} if call.field("eval.every_steps") is None else {"eval.every_steps": None}
    return "It chooses the checkpoint and is not switched off, but eval.limit=100 keeps it short"


def _saving(call: TrainerCall) -> Changes | str:
    if call.value == "steps":
        return call.count_steps("train.snapshot.every_steps", call.arguments.get("save_steps") or 500)
    return {} if call.value == "best" else "Set train.snapshot.every_steps or train.snapshot.every_minutes"


def _tracker(call: TrainerCall) -> Changes | str:
    tools = call.value if isinstance(call.value, list) else [call.value]
    if len(tools) == 1 and tools[0] in ("tensorboard", "trackio", "wandb", "mlflow"):
        return {"--track": tools[0]}
    return {} if tools in (["none"], [None]) else "Choose one of tensorboard, trackio, wandb, mlflow for --track"


def _fsdp(call: TrainerCall) -> Changes | str:
    if not call.value:
        return {}
    return {"strategy.parallel": "fsdp"} | ({"strategy.offload": True} if "offload" in str(call.value) else {})


def _deepspeed(call: TrainerCall) -> Changes | str:
    content = call.value
    if isinstance(content, str):
        with suppress(OSError, ValueError):
            content = json.loads(Path(content).read_text("utf-8"))
    stage = content.get("zero_optimization", {}).get("stage") if isinstance(content, Mapping) else None
    if stage in (2, 3):
        return {"strategy.parallel": "fsdp", "strategy.sharding": f"zero{stage}"}
    return "Set strategy.parallel=fsdp, and strategy.sharding=zero2 or zero3"


def _model(call: TrainerCall) -> Changes | str:
    if is_path(call.value):
        return {"model.path": call.value}
    return {"model.name": call.value} | ({} if call.field("model.path") is None else {"model.path": None})


def _files(call: TrainerCall) -> Changes | str:
    names = {"train": "train_file", "validation": "validation_file", "test": "test_file"}
    files = {split: call.arguments[name] for split, name in names.items() if name in call.arguments}
    if list(files) == ["train"]:
        return {"data.path": files["train"]}
    folder = os.path.commonpath([os.path.dirname(file) for file in files.values()]) or "."
    inside = {f"data.splits.{split}": os.path.relpath(file, folder) for split, file in files.items()}
    return {"data.path": folder, **inside}


def _question(call: TrainerCall) -> Changes | str:
    question, context = (call.arguments.get(f"{name}_column", name) for name in ("question", "context"))
    return {"task.source": f"question: {{{question}}} context: {{{context}}}"}


def _language(call: TrainerCall, side: str) -> Changes | str:
    if "_" in call.value:
        return {f"task.{side}_language": call.value}
    return {f"task.{side}": f"{{translation.{call.value}}}"}


def _best(call: TrainerCall) -> Changes | str:
    """transformers' rouge1 is the F1 of it, and sacreBLEU's score is called bleu."""
    name = call.value.removeprefix("eval_").removeprefix("test_")
    ours = {"rouge1": "rouge1_f1", "rouge2": "rouge2_f1", "rougeL": "rougeL_f1", "rougeLsum": "rougeLsum_f1"}
    return {"eval.best": ours.get(name, {"sacrebleu": "bleu", "score": "bleu", "exact_match": "em"}.get(name, name))}


def _evaluation_batch(call: TrainerCall) -> Changes | str:
    source = call.arguments.get("max_source_length", call.field("task.max_source_tokens"))
    target = call.arguments.get("max_target_length", call.field("task.max_target_tokens"))
    if source is None or target is None:
        return f"Set it to {call.value} times the source and target tokens of an example, or keep its default, 8192"
    return {"eval.batch_tokens": call.value * (source + target)}


_FUNCTIONS: dict[str, Callable[[TrainerCall], Changes | str]] = {
    "batch": _batch,
    "steps": lambda call: {"train.steps": call.value} if call.value > 0 else {},
    "schedule_constants": _schedule_constants,
    "warm_up": lambda call: call.count_steps("train.schedule.warmup_steps", call.value),
    "clip": lambda call: {"train.clip_norm": call.value or None},
    "bf16": _bf16,
    "evaluation": _evaluation,
    "evaluation_steps": lambda call: call.count_steps("eval.every_steps", call.value),
    "evaluation_batch": _evaluation_batch,
    "best": _best,
    "resume": lambda call: {"--resume": True} if call.value else {},
    "saving": _saving,
    "saving_steps": lambda call: call.count_steps("train.snapshot.every_steps", call.value),
    "logging_steps": lambda call: call.count_steps("train.log_every", call.value),
    "tracker": _tracker,
    "fsdp": _fsdp,
    "deepspeed": _deepspeed,
    "model": _model,
    "files": _files,
    "source": lambda call: {"task.source": " ".join(f"{{{column.strip()}}}" for column in call.value.split(","))},
    "question": _question,
    "answer": lambda call: {"task.target": "{answers.text}" if call.value == "answers" else f"{{{call.value}}}"},
    "source_language": lambda call: _language(call, "source"),
    "target_language": lambda call: _language(call, "target"),
}


def explain_argument(name: str, arguments: Mapping[str, Any], recipe: Mapping[str, Any], *, in_file: bool) -> str:
    argument, shown = find_argument(name), write_flow(arguments[name])
    assert argument is not None
    if not argument.has_field:
        return format_error(f"a Trainer argument without a field here, set to {shown}", argument.note, "Remove it")
    found = translate_argument(name, arguments, recipe)
    note = argument.note
    if not note:
        parts = [argument.rule.get("write", {}), *argument.rule.get("values", {}).values()]
        names = found if isinstance(found, dict) and found else dict.fromkeys(name for part in parts for name in part)
        note = f"Here it is {' and '.join(name for name in names if name != 'allow')}"
    if isinstance(found, str):
        note, change = ("This value has no counterpart", found) if "values" in argument.rule else (note, found)
    else:
        change = f"Write {format_changes(found, in_file=in_file)}" if found else "Remove it"
    return format_error(f"a Trainer argument, set to {shown}", note, change)


def merge_changes(names: Iterable[str], arguments: Mapping[str, Any], recipe: Mapping[str, Any]) -> Changes:
    """What to write for all these arguments together; a field that one of them takes out may be set by another."""
    merged: Changes = {}
    for name in names:
        found = translate_argument(name, arguments, recipe)
        for path, value in found.items() if isinstance(found, dict) else ():
            if path == "allow":
                value = list(dict.fromkeys([*merged.get("allow", []), *value]))
            if value is not None or merged.get(path) is None:
                merged[path] = value
    return merged


def format_changes(changes: Changes, *, in_file: bool = False) -> str:
    """{'train.epochs': 3, '--out': 'x'} -> 'train.epochs=3 --out x', or for a file 'train: {epochs: 3}'."""
    if not in_file:
        return " ".join(list_argv(changes))
    fields, options = separate_options(changes)
    written = [write_flow(nest_fields(fields))[1:-1]] if fields else []
    return " and ".join([*written, *(f"{option} on the command line" for option in list_argv(options))])


def list_argv(changes: Changes) -> list[str]:
    """In quotes where a shell needs them; an option and its value are one."""
    fields, options = separate_options(changes)
    argv = [name if value is True else f"{name} {quote(value)}" for name, value in options.items()]
    return [*(quote(f"{path}={write_flow(value)}") for path, value in fields.items()), *argv]


def separate_options(changes: Changes) -> tuple[Changes, Changes]:
    fields = {path: value for path, value in changes.items() if not path.startswith("--")}
    return fields, {name: value for name, value in changes.items() if name not in fields}


def format_together(changes: Changes, *, in_file: bool) -> str:
    """All changes, to paste: one line for a command, a block of YAML for a file."""
    fields, options = separate_options(changes)
    if not in_file:
        return f"All of it together: {format_changes(changes)}"
    block = [f"  {line}" for line in write_yaml(nest_fields(fields)).splitlines()] if fields else []
    more = [f"On the command line: {format_changes(options)}"] if options else []
    return "\n".join(["All of it together:", *block, *more])


def nest_fields(fields: Changes) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in fields.items():
        *above, last = path.split(".")
        holder = nested
        for key in above:
            holder = holder.setdefault(key, {})
        holder[last] = value
    return nested


def take_options(argv: Sequence[str], known: Iterable[str]) -> tuple[list[str], list[str]]:
    """The rest of a command, and as overrides the options that only the Trainer has.

    ['demo', '--fp16', '--learning-rate', '3e-4', '--out', 'x']
    -> ['demo', '--out', 'x'], ['fp16=true', 'learning_rate=3e-4']
    """
    rest, overrides = [], []
    left = list(argv)
    while left:
        given = left.pop(0)
        option, equals, value = given.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        negated = name.startswith("no_") and find_argument(name) is None  # --no_remove_unused_columns
        argument = find_argument(name.removeprefix("no_") if negated else name)
        if not given.startswith("--") or option in known or argument is None or (negated and not argument.is_flag):
            rest.append(given)
            continue
        if negated or (argument.is_flag and not equals and not (left and left[0].lower() in _SWITCH)):
            value = str(not negated).lower()
        elif not equals and left and not left[0].startswith("--"):
            value = left.pop(0)
        if argument.is_flag:
            value = _SWITCH.get(value.lower(), value)
        overrides.append(f"{name.removeprefix('no_') if negated else name}={value}")
    return rest, overrides


def explain_options(overrides: Sequence[str], where: str, verb: str = "has") -> str:
    arguments, _ = apply_overrides({}, overrides)
    lines = [f"{name}: {explain_argument(name, arguments, {}, in_file=False)}" for name in arguments]
    together = format_together(merge_changes(arguments, arguments, {}), in_file=False)
    return f"{report_mistakes(where, lines, verb)}\n{together}"


_SWITCH = {"true": "true", "yes": "true", "1": "true", "false": "false", "no": "false", "0": "false"}
