"""The options of a comparison: a matrix file, command-line options or keywords come in, `ComparisonOptions` goes out.

    strategies: [classic, bf16+recompute, {short: [task.max_source_tokens=128]}]
    vary: {train.learning_rate: [1e-4, 3e-4]}
    seeds: [0, 1]
    gpus: [v100-16-sxm]
    budget: 20m

Options take precedence over the file. All mistakes are reported together. The recipe is not read here.

A set, such as classic, is a YAML file in library/: a list of what --strategies takes.

    expand_sets(["classic", "bf16"])  ->  ["baseline", "fp16", "accumulation", "recompute", "adafactor", "all", "bf16"]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator

from seqfit.errors import PlanError, RecipeError
from seqfit.hardware import find_card
from seqfit.recipe import report_mistakes, schema, validate_part
from seqfit.units import parse_seconds
from seqfit.yaml_text import read_yaml

DEFAULT_STEPS = 15
REPEATS = 5  # whole processes differ: more of them say more than more steps of each (statistics.py)


class ComparisonOptions(schema.RecipePart):
    """The fields of a matrix file."""

    strategies: list[str | dict[str, list[str]]] | None = Field(
        None,
        description="Candidates: sets (classic), names (fp16), names joined by + (fp16+recompute), fields such as "
        "strategy.prefetch=4, or {name: [parts]} (default: classic, or baseline if vary is given).",
    )
    vary: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict, description="Fields of the recipe and the values to try; other results are expected."
    )
    cross: bool = Field(False, description="Try the values of vary with every strategy (default: baseline only).")
    seeds: list[Annotated[int, Field(ge=0)]] = Field(
        [0], min_length=1, description="Random seeds; every candidate is trained with each."
    )
    repeats: Annotated[int, Field(ge=1)] = Field(REPEATS, description="Trials of every candidate with every seed.")
    steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description=f"Steps of every trial (default: {DEFAULT_STEPS}, or the recipe's if fewer)."
    )
    warm_up: Annotated[int, Field(ge=0)] = Field(3, description="Warm-up steps excluded from timing.")
    gpus: list[str] = Field(default_factory=list, description="GPUs to predict every candidate for.")
    devices: list[Literal["auto", "cpu", "cuda"]] = Field(
        default_factory=list, description="Devices to train on; every candidate runs on each (default: the recipe's)."
    )
    larger: str | None = Field(None, description="The model that 'larger' stands for: a Hub name or a folder.")
    budget_seconds: Annotated[float, Field(gt=0)] | None = Field(
        None, alias="budget", description="Time limit, such as 20m: as many steps and repeats run as fit."
    )

    @field_validator("strategies", mode="before")
    @classmethod
    def _to_list(cls, given: Any) -> Any:
        if isinstance(given, str):
            return split_list(given)
        return [{name: parts} for name, parts in given.items()] if isinstance(given, Mapping) else given

    @field_validator("vary", mode="before")
    @classmethod
    def _to_texts(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        lists = {field: values for field, values in given.items() if isinstance(values, list | tuple)}
        return dict(given) | {field: [format_value(value) for value in values] for field, values in lists.items()}

    @field_validator("budget_seconds", mode="before")
    @classmethod
    def _to_seconds(cls, given: Any) -> Any:
        return parse_seconds(given) if isinstance(given, str) else given

    @field_validator("gpus")
    @classmethod
    def _known(cls, gpus: list[str]) -> list[str]:
        try:
            return list(dict.fromkeys(find_card(name).key for name in gpus))
        except PlanError as error:
            raise ValueError(str(error).rstrip(".")) from error

    @field_validator("seeds")
    @classmethod
    def _are_unique(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{seeds} names a seed twice; name each once, and use repeats to train it more often")
        return seeds


def read_options(file: str | Path | Mapping[str, Any] | None, options: Mapping[str, Any]) -> ComparisonOptions:
    """`file`: a matrix file or a mapping; an option that is None was not given."""
    values = {} if file is None else dict(file) if isinstance(file, Mapping) else _read_file(Path(file))
    values |= {name: value for name, value in options.items() if value is not None}
    read, mistakes = validate_part(ComparisonOptions, values)
    if read is None:
        raise RecipeError(report_mistakes("The comparison", mistakes))
    return read


def split_list(text: str) -> list[str]:
    """'fp16, strategy.freeze=[embeddings,encoder]' -> two entries: commas within brackets don't separate."""
    entries, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]


def format_value(value: Any) -> str:
    """As in an override: true, null, [a, b]; text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values, repeated = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(
            f"'{path}' can't be read ({' '.join(str(error).split())})",
            "a matrix is a YAML file",
            "Give the path of one, or name the candidates with --strategies",
        ) from error
    if not isinstance(values, dict) or repeated:
        wrong = repeated[0] if repeated else "it has no fields"
        raise RecipeError(
            f"'{path}': {wrong}",
            "a matrix file maps each field to its value once",
            "Begin with strategies: [baseline, fp16]",
        )
    return values


_Entry = str | dict[str, list[str]]  # 'fp16', or {name: [parts]}


def list_sets() -> list[str]:
    folder = resources.files("seqfit.comparison") / "library"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def expand_sets(entries: Sequence[_Entry]) -> list[_Entry]:
    known = list_sets()
    found: list[_Entry] = []
    for entry in entries:
        members = [entry]
        if isinstance(entry, str) and entry in known:
            text = (resources.files("seqfit.comparison") / "library" / f"{entry}.yaml").read_text("utf-8")
            members = read_yaml(text)[0]
        found += [member for member in members if member not in found]
    return found
