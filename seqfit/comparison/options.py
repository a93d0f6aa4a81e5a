"""What a comparison was asked for: a matrix file, options or keywords come in, one checked `Asked` goes out.

    strategies: [classic, bf16+recompute, {short: [task.max_source_tokens=128]}]
    vary: {train.learning_rate: [1e-4, 3e-4]}
    seeds: [0, 1]
    gpus: [v100-16-sxm]
    budget: 20m

Options win over the file. All mistakes are told together. Nothing of the recipe is looked at here.

Named sets of entrants: YAML files of this room, each a list of what --strategies takes.

expand_sets(["classic", "bf16"])   ->   ["baseline", "fp16", "accumulation", "recompute", "adafactor", "all", "bf16"]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from seqfit.errors import PlanError, RecipeError
from seqfit.hardware.cards import find_card
from seqfit.recipe.mistakes import explain_mistake, report_mistakes, to_line
from seqfit.recipe.schema import RecipePart
from seqfit.recipe.yaml_text import read_yaml
from seqfit.units import parse_seconds

DEFAULT_STEPS = 15  # of a trial, unless something is said or the recipe has fewer
REPEATS = 5  # processes scatter as a whole: more of them tell more than more steps of each (noise.py)


class ComparisonOptions(RecipePart):
    """One comparison, before it is made of entrants. A matrix file has these fields."""

    strategies: list[str | dict[str, list[str]]] | None = Field(
        None,
        description="Sets, names, names joined by +, fields such as strategy.prefetch=4, or {name: [parts]}; default: "
        "classic, or baseline where something varies.",
    )
    vary: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict, description="Fields of the recipe and the values to try: other answers, marked as such."
    )
    cross: bool = Field(False, description="Every strategy with every value that varies; default: the baseline only.")
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1, description="Every candidate runs with each.")
    repeats: Annotated[int, Field(ge=1)] = Field(REPEATS, description="How often every candidate runs with every seed.")
    steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description=f"Updates of every trial; default: {DEFAULT_STEPS}, or the recipe's where these are fewer."
    )
    warm_up: Annotated[int, Field(ge=0)] = Field(3, description="Of them, first ones that are not timed.")
    gpus: list[str] = Field(default_factory=list, description="GPUs to predict every candidate for.")
    devices: list[Literal["auto", "cpu", "cuda"]] = Field(
        default_factory=list, description="Where to train; several make a candidate for each; default: the recipe's."
    )
    larger: str | None = Field(None, description="The model that 'larger' stands for: a Hub name or a folder.")
    budget_seconds: Annotated[float, Field(gt=0)] | None = Field(
        None, alias="budget", description="The time for all of it, such as 20m: steps and repeats are as many as fit."
    )

    @field_validator("strategies", mode="before")
    @classmethod
    def _to_list(cls, given: Any) -> Any:
        if isinstance(given, str):
            return split_words(given)
        return [{name: parts} for name, parts in given.items()] if isinstance(given, Mapping) else given

    @field_validator("vary", mode="before")
    @classmethod
    def _to_texts(cls, given: Any) -> Any:
        """Values as an override spells them."""
        if not isinstance(given, Mapping):
            return given
        lists = {field: values for field, values in given.items() if isinstance(values, list | tuple)}
        return dict(given) | {field: [spell(value) for value in values] for field, values in lists.items()}

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
    def _told_apart(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{seeds} has a seed twice; give each once, and use repeats to run it more often")
        return seeds


def read_options(file: str | Path | Mapping[str, Any] | None, options: Mapping[str, Any]) -> ComparisonOptions:
    """A matrix file or mapping with the options on top; an option that is None was not given."""
    values = {} if file is None else dict(file) if isinstance(file, Mapping) else _read_file(Path(file))
    values |= {name: value for name, value in options.items() if value is not None}
    try:
        return ComparisonOptions.model_validate(values)
    except ValidationError as error:
        lines = [to_line(mistake) for mistake in explain_mistake(error, values, ComparisonOptions)]
        raise RecipeError(report_mistakes("The comparison", lines)) from error


def split_words(text: str) -> list[str]:
    """'fp16, strategy.freeze=[embeddings,encoder]' -> two words: commas within brackets part nothing."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return [word.strip() for word in words if word.strip()]


def spell(value: Any) -> str:
    """A value as an override has it: true, null, [a, b]; text as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values, repeated = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(
            f"'{path}' can't be read ({' '.join(str(error).split())})",
            "a matrix is a YAML file",
            "Give its path, or name the entrants with --strategies",
        ) from error
    if not isinstance(values, dict) or repeated:
        wrong = repeated[0] if repeated else "it holds no fields"
        raise RecipeError(
            f"'{path}': {wrong}", "a matrix has each field once", "Write strategies: [baseline, fp16] first"
        )
    return values


_Word = str | dict[str, list[str]]  # 'fp16', or {name: [parts]}


def list_sets() -> list[str]:
    """The names that ship."""
    folder = resources.files("seqfit.comparison") / "library"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def expand_sets(words: Sequence[_Word]) -> list[_Word]:
    """Sets by what is in them; what is named twice is there once."""
    known = list_sets()
    found: list[_Word] = []
    for word in words:
        inside = _read_set(word) if isinstance(word, str) and word in known else [word]
        found += [item for item in inside if item not in found]
    return found


def _read_set(name: str) -> list[_Word]:
    text = (resources.files("seqfit.comparison") / "library" / f"{name}.yaml").read_text("utf-8")
    return list(read_yaml(text)[0])
