"""Reads a recipe's strategy: nothing, a name (a YAML file of this room), or its fields.

Fields that name a strategy of this room start from it: {name: vanilla, threads: 1} is vanilla with one thread.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from pydantic import ValidationError

from seqfit.errors import RecipeError, complain, did_you_mean
from seqfit.recipe.mistakes import explain
from seqfit.recipe.schema import Recipe
from seqfit.recipe.yaml_text import read_yaml, write_yaml
from seqfit.strategy.schema import LOSSY, Strategy


def list_strategies() -> list[str]:
    """The names that ship."""
    folder = resources.files("seqfit.strategy") / "library"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_strategy(recipe: Recipe) -> Strategy:
    """The strategy a recipe asks for, checked against its `allow:` list."""
    given = recipe.strategy
    fields: dict[str, Any] = _load_named(given) if isinstance(given, str) else dict(given or {})
    if fields.get("name") in list_strategies():
        fields = _load_named(fields["name"]) | fields
    try:
        strategy = Strategy.model_validate(fields)
    except ValidationError as error:
        lines = [f"  strategy.{'.'.join(map(str, path))}: {text}" for path, text in explain(error, fields, Strategy)]
        raise RecipeError("\n".join(["The strategy has mistakes:", *lines])) from error
    _check_allowed(strategy, recipe.allow)
    return strategy


def dump_strategy(strategy: Strategy) -> str:
    """YAML with every default filled in."""
    return write_yaml(strategy.model_dump(exclude_none=True))


def _load_named(name: str) -> dict[str, Any]:
    if name not in list_strategies():
        raise RecipeError(
            complain(
                f"the strategy is '{name}'",
                f"the strategies are {', '.join(list_strategies())}",
                f"Choose one, or give fields such as strategy.precision=fp32.{did_you_mean(name, list_strategies())}",
            )
        )
    text = (resources.files("seqfit.strategy") / "library" / f"{name}.yaml").read_text("utf-8")
    return {"name": name, **(read_yaml(text)[0] or {})}


def _check_allowed(strategy: Strategy, allow: list[str]) -> None:
    for word in allow:
        if word not in LOSSY:
            raise RecipeError(
                complain(
                    f"allow has '{word}'",
                    f"the lossy strategies are {', '.join(LOSSY)}",
                    f"Remove it or correct it.{did_you_mean(word, LOSSY)}",
                )
            )
    for kind in strategy.lossy:
        if kind not in allow:
            raise RecipeError(
                complain(
                    f"the strategy uses {kind}, but the recipe allows {allow}",
                    "a lossy strategy changes the update and is used only where the recipe names it",
                    f"Add it with 'allow=[{', '.join([*allow, kind])}]', or set strategy.precision=fp32",
                )
            )
