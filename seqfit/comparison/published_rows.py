"""A table of published rows: what an account says of each configuration, and what it measured.

In: a mapping. Out: rows with the arguments that each had, and of a row its counts, figures, scores and facts.

A table has arguments for all rows, and rows with their own and with what was measured:

    model: t5-base
    data: {name: AG News, train: 1000, validation: 100, test: 100}
    memory: summed                                             or per GPU
    arguments: {num_train_epochs: 5, per_device_train_batch_size: 32}
    by_strategy: {fp16: "true for fp16 and all, else false"}   an argument that depends on the row
    rows:
      - {name: fp16, seconds: 69, gb: 5.47, accuracy: 78}
      - {name: two GPUs, arguments: {fp16: true}, gpus: 2, seconds: 40}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.comparison.aspects import find_meant, is_everything
from seqfit.comparison.audits import Fact
from seqfit.comparison.script_facts import Counts, name_model
from seqfit.errors import RecipeError, did_you_mean
from seqfit.metrics import metric_of_score
from seqfit.recipe import trainer_names
from seqfit.yaml_text import read_yaml

_GB = 1e9
_ROW_FIELDS = (
    "name",
    "left",
    "arguments",
    "recipe",
    "overrides",
    "script",
    "gpus",
    "hardware",
    "memory",
    "model",
    "data",
)
_FIGURES = {"seconds": ("seconds", 1.0), "step_seconds": ("step_seconds", 1.0), "gb": ("memory_bytes", _GB)}
_NOT_STATED = ("not stated", "unknown", "not known")
_CONDITION = re.compile(r"(?P<value>.+?)(?: \([^)]*\))? for (?P<rows>.+?)(?:, else (?P<other>.+?)(?: \([^)]*\))?)?")
_SHARED = ("model", "data", "hardware", "gpus", "memory")


def expand_table(table: Mapping[str, Any], path: Path) -> Iterator[tuple[dict[str, Any], set[str] | None]]:
    """Each row with all its arguments; and where the table has none of its own for any row, the aspects that a row is
    named after and that no argument states."""
    rows = table["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and row.get("name") for row in rows):
        raise RecipeError(
            f"{path}: rows is not a list of rows with names",
            "a table has one row for each configuration, {name: fp16, arguments: {fp16: true}}",
            "Give each row a name",
        )
    names = [str(row["name"]) for row in rows]
    conditions = {
        name: _Condition(name, text, names, path) for name, text in _mapping(table, "by_strategy", path).items()
    }
    shared = {key: table[key] for key in _SHARED if key in table}
    common = {name: value for name, value in table.items() if trainer_names.find_argument(name) is not None}
    common |= _mapping(table, "arguments", path)
    states_rows = bool(conditions) or any({"arguments", "recipe", "script"} & set(row) for row in rows)
    for row in rows:
        name = str(row["name"])
        stated = {} if states_rows else _read_name(name)
        unchecked = None if states_rows else find_meant(stated.pop("left"))
        own = {key: one.value_of(name) for key, one in conditions.items()}
        arguments = common | {key: value for key, value in own.items() if value is not None}
        arguments |= stated.get("arguments", {}) | _mapping(row, "arguments", path)
        yield {**shared, **stated, **row, **_find_files(row, path.parent), "arguments": arguments}, unchecked or None


def _find_files(row: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """A script or recipe next to the table."""
    named = {key: row[key] for key in ("script", "recipe") if isinstance(row.get(key), str)}
    return {key: str(folder / name) for key, name in named.items() if (folder / name).is_file()}


def _mapping(values: Mapping[str, Any], name: str, place: object) -> dict[str, Any]:
    found = values.get(name) or {}
    if not isinstance(found, Mapping):
        raise RecipeError(
            f"{place}: {name} is {found!r}",
            "it has names with values",
            f"Write {name}: {{fp16: true}}, or leave it out",
        )
    return {str(key): value for key, value in found.items()}


@dataclass(frozen=True)
class PublishedRow:
    name: str
    arguments: dict[str, Any]
    is_naive: bool  # model.parallelize(): one copy of the model, on several GPUs
    gpus: int | None
    rows: Counts
    facts: dict[str, Fact]
    figures: dict[str, float]
    scores: dict[str, float]
    memory_is_summed: bool | None
    notes: tuple[str, ...]


def read_row(row: Mapping[str, Any], place: str) -> PublishedRow:
    name = str(row.get("name") or row.get("model") or "item")
    said = row.get("data")
    data: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    _check_counts(name, data, place)
    arguments = _mapping(row, "arguments", place)
    is_naive = bool(arguments.pop("parallelize", False)) or arguments.get("device_map") is not None
    if not arguments and row.get("recipe") is None and row.get("script") is None:
        raise RecipeError(
            f"{place}: '{name}' has no arguments",
            "a row has arguments of transformers' Trainer, a recipe or a script",
            "Write arguments: {learning_rate: 1e-4, ...}",
        )
    facts = _read_data(data) if data else {}
    model, hardware = (str(row.get(key) or "") for key in ("model", "hardware"))
    if model and model.strip().lower() not in _NOT_STATED:
        facts["model"] = Fact([name_model(model), "pretrained"], model)
    if hardware and hardware.strip().lower() not in _NOT_STATED:
        facts["machine"] = Fact(hardware, hardware)
    figures, scores, notes = _read_measured(row)
    names = [key for rows in trainer_names.load_sections().values() for key in rows]
    notes += [
        f"{key} is not an argument of the Trainer, and is not compared.{did_you_mean(key, names)}"
        for key in arguments
        if trainer_names.find_argument(key) is None
    ]
    return PublishedRow(
        name=name,
        arguments=arguments,
        is_naive=is_naive,
        gpus=_read_gpus(name, row, place),
        rows=Counts(data.get("train"), data.get("test") or data.get("validation")),
        facts=facts,
        figures=figures,
        scores=scores,
        memory_is_summed=_is_summed(row.get("memory"), place),
        notes=tuple(notes),
    )


class _Condition:
    """An argument that depends on the row: 'true for fp16 and all, else false'."""

    def __init__(self, argument: str, text: object, rows: Sequence[str], path: Path) -> None:
        match = _CONDITION.fullmatch(str(text))
        if match is None:
            raise RecipeError(
                f"{path}: by_strategy.{argument} is '{text}'",
                "it says for which rows an argument has a value",
                "Write it as 'true for fp16 and all, else false'",
            )
        named = re.split(r", | and ", match["rows"])
        self._rows = {row for word in named for row in rows if _is_meant(word, row)}
        lost = [word for word in named if not any(_is_meant(word, row) for row in rows)]
        if lost:
            raise RecipeError(
                f"{path}: by_strategy.{argument} names '{lost[0]}'",
                f"the rows are {', '.join(rows)}",
                "Write the name of a row",
            )
        self._value, self._other = _read_value(match["value"]), _read_value(match["other"])

    def value_of(self, row: str) -> Any:
        return self._value if row in self._rows else self._other


def _is_meant(word: str, row: str) -> bool:
    """By its name, or by what both are named after: grad_accumulation is the row 'gradient accumulation'."""
    if word.lower() == row.lower():
        return True
    return bool(find_meant(word)) and find_meant(word) == find_meant(row) and not is_everything(row)


def _read_value(text: str | None) -> Any:
    if text is None:
        return None
    value = read_yaml(text)[0]
    return {"True": True, "False": False}.get(value, value) if isinstance(value, str) else value


def _read_name(name: str) -> dict[str, Any]:
    """A name that is an argument says what the row has, where the table gives no arguments: gradient_checkpointing."""
    arguments: dict[str, Any] = {}
    left, gpus = [], None
    for part in (one.strip() for one in name.split(",")):
        key, equals, value = part.removeprefix("model.").removesuffix("()").partition("=")
        argument = trainer_names.find_argument(key)
        if part in ("fp32", "fp16", "bf16"):
            arguments |= {"fp16": part == "fp16", "bf16": part == "bf16"}
        elif argument is not None and (equals or argument.is_flag):
            arguments[key] = _read_value(value) if equals else True
        elif part.startswith("adamw_"):
            arguments["optim"] = part
        elif match := re.fullmatch(r"(single|\d+) GPUs?", part):
            gpus = 1 if match[1] == "single" else int(match[1])
        else:
            left.append(part)
    return {"arguments": arguments, "left": ", ".join(left), **({} if gpus is None else {"gpus": gpus})}


def _read_data(data: Mapping[str, Any]) -> dict[str, Fact]:
    name = str(data.get("name", "data"))
    train, scored = data.get("train"), [f"{data[key]:,} {key}" for key in ("validation", "test") if data.get(key)]
    trained = name if train is None else f"{name}, {train:,} rows"
    return {
        "data": Fact([name, train], trained),
        "test_data": Fact([name, scored], f"{name}, {', '.join(scored)} rows" if scored else name),
    }


def _read_gpus(name: str, row: Mapping[str, Any], place: str) -> int | None:
    """As stated, or of '2x RTX 3090'."""
    gpus = row.get("gpus")
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1):
        raise RecipeError(f"{place}: gpus of '{name}' is {gpus!r}", "it is a number of GPUs", "Write gpus: 2")
    match = re.match(r"(\d+) ?x ", str(row.get("hardware", "")))
    return gpus if gpus is not None else int(match[1]) if match else None


def _check_counts(name: str, data: Mapping[str, Any], place: str) -> None:
    for key in ("train", "validation", "test"):
        value = data.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise RecipeError(
                f"{place}: data.{key} of '{name}' is {value!r}",
                "it is a number of rows",
                f"Write {key}: 1000, or leave it out",
            )


def _read_measured(row: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """Seconds, GB and scores; other numbers are left out, and listed."""
    figures, scores, notes = {}, {}, []
    for key, value in {**row, **(row.get("scores") or {})}.items():
        if key in _ROW_FIELDS or key == "scores" or value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            notes.append(f"{key}: {value} is not compared")
        elif key in _FIGURES:
            name, factor = _FIGURES[key]
            figures[name] = value * factor
        elif metric_of_score(key) is not None or key == "loss":
            scores[key] = float(value)
        else:
            notes.append(f"{key}: {value} is not compared")
    return figures, scores, notes


def _is_summed(said: object, place: str) -> bool | None:
    if said is None:
        return None
    text = str(said).lower()
    if text not in ("summed", "per gpu"):
        raise RecipeError(
            f"{place}: memory is '{said}'",
            "it says whether GB are summed over the GPUs or those of one",
            "Write memory: summed, or memory: per GPU",
        )
    return text == "summed"
