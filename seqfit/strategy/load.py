"""Reads a recipe's strategy: nothing, the name of a shipped one (library/NAME.yaml), or its fields.

Fields that name a shipped strategy start from it: {name: baseline, threads: 1} is baseline with one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from seqfit.errors import RecipeError, RunError, did_you_mean, format_error
from seqfit.recipe import Mistake, Recipe, TrainRecipe, report_mistakes, validate_part
from seqfit.strategy.conflicts import find_conflicts
from seqfit.strategy.schema import LOSSY, Strategy
from seqfit.yaml_text import read_yaml, write_yaml

_WITHOUT = {  # how to do without each lossy kind
    "bf16": "set strategy.precision=fp32",
    "fp16": "set strategy.precision=fp32",
    "adafactor": "set strategy.optimizer=recipe",
    "8bit": "set strategy.optimizer=recipe",
    "lora": "remove strategy.lora_rank (model.lora makes adapters part of the recipe itself)",
    "freeze": "remove strategy.freeze (model.freeze makes it part of the recipe itself)",
}


def list_strategies() -> list[str]:
    folder = resources.files("seqfit.strategy") / "library"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_strategy(recipe: Recipe) -> Strategy:
    """A recipe's strategy, checked against its `allow:` list and its `train:` part."""
    mistakes = find_strategy_mistakes(recipe.strategy, recipe.allow, recipe.train)
    if mistakes:
        raise RecipeError(report_mistakes("The strategy", mistakes))
    return Strategy.model_validate(_to_fields(recipe.strategy))


def read_strategy(path: Path) -> Strategy:
    """What `dump_strategy` wrote: the strategy of a run, with what a plan has chosen."""
    try:
        return Strategy.model_validate(read_yaml(path.read_text("utf-8"))[0])
    except (OSError, ValueError, yaml.YAMLError) as error:  # pydantic's and Unicode's are ValueErrors
        raise RunError(
            f"{path} can't be read ({type(error).__name__})",
            "it holds the strategy of the run",
            "It was edited or corrupted: restore it, or start a new run",
        ) from error


def find_strategy_mistakes(
    strategy: str | Mapping[str, Any] | None, allow: Sequence[str], train: TrainRecipe | None = None
) -> list[Mistake]:
    """Everything wrong with a recipe's `strategy:` and `allow:`, and where they and `train:` (if readable) disagree."""
    unknown_kinds = [_explain_kind(kind) for kind in allow if kind not in LOSSY]
    if isinstance(strategy, str) and strategy not in list_strategies():
        return [_explain_name(strategy), *unknown_kinds]
    fields = _to_fields(strategy)
    loaded, mistakes = validate_part(Strategy, fields, within=("strategy",))
    if loaded is None:
        return [*mistakes, *unknown_kinds]
    unallowed = [_explain_lossy(kind, allow) for kind in loaded.lossy if kind not in allow]
    return [*unknown_kinds, *unallowed, *(find_conflicts(loaded, train) if train is not None else ())]


def dump_strategy(strategy: Strategy) -> str:
    return write_yaml(strategy.model_dump(exclude_none=True))


def _to_fields(strategy: str | Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": strategy} if isinstance(strategy, str) else dict(strategy or {})
    return load_named(fields["name"]) | fields if fields.get("name") in list_strategies() else fields


def load_named(name: str) -> dict[str, Any]:
    text = (resources.files("seqfit.strategy") / "library" / f"{name}.yaml").read_text("utf-8")
    return {"name": name, **(read_yaml(text)[0] or {})}


def _explain_name(name: str) -> Mistake:
    sentence = format_error(
        f"'{name}' is given",
        f"the strategies are {', '.join(list_strategies())}",
        f"Choose one, or give fields such as strategy.precision=fp32.{did_you_mean(name, list_strategies())}",
    )
    return Mistake(("strategy",), sentence)


def _explain_kind(kind: str) -> Mistake:
    sentence = format_error(
        f"'{kind}' is given",
        f"the lossy strategies are {', '.join(LOSSY)}",
        f"Remove it or correct it.{did_you_mean(kind, LOSSY)}",
    )
    return Mistake(("allow",), sentence)


def _explain_lossy(kind: str, allow: Sequence[str]) -> Mistake:
    sentence = format_error(
        f"the strategy uses {kind}, but the recipe allows {list(allow)}",
        "a lossy strategy changes the update and is used only where the recipe names it",
        f"Add it with 'allow=[{', '.join([*allow, kind])}]', or {_WITHOUT[kind]}",
    )
    return Mistake(("allow",), sentence)
