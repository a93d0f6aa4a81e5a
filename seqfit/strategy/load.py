"""Reads a recipe's strategy: nothing, a name (a YAML file of this room), or its fields.

Fields that name a strategy of this room start from it: {name: vanilla, threads: 1} is vanilla with one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pydantic import ValidationError

from seqfit.errors import RecipeError, complain, did_you_mean
from seqfit.recipe.mistakes import Mistake, explain, report_mistakes, to_line
from seqfit.recipe.schema import Recipe
from seqfit.recipe.yaml_text import read_yaml, write_yaml
from seqfit.strategy.schema import LOSSY, Strategy


def list_strategies() -> list[str]:
    """The names that ship."""
    folder = resources.files("seqfit.strategy") / "library"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_strategy(recipe: Recipe) -> Strategy:
    """The strategy a recipe asks for, checked against its `allow:` list."""
    mistakes = find_strategy_mistakes(recipe.strategy, recipe.allow)
    if mistakes:
        raise RecipeError(report_mistakes("The strategy", list(map(to_line, mistakes))))
    return Strategy.model_validate(_to_fields(recipe.strategy))


def find_strategy_mistakes(strategy: str | Mapping[str, Any] | None, allow: Sequence[str]) -> list[Mistake]:
    """Everything wrong with a recipe's `strategy:` and `allow:`, and where the two disagree."""
    wrong_words = [_explain_word(word) for word in allow if word not in LOSSY]
    if isinstance(strategy, str) and strategy not in list_strategies():
        return [_explain_name(strategy), *wrong_words]
    fields = _to_fields(strategy)
    try:
        loaded = Strategy.model_validate(fields)
    except ValidationError as error:
        return [*((("strategy", *path), text) for path, text in explain(error, fields, Strategy)), *wrong_words]
    return [*wrong_words, *(_explain_lossy(kind, allow) for kind in loaded.lossy if kind not in allow)]


def dump_strategy(strategy: Strategy) -> str:
    """YAML with every default filled in."""
    return write_yaml(strategy.model_dump(exclude_none=True))


def _to_fields(strategy: str | Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": strategy} if isinstance(strategy, str) else dict(strategy or {})
    return _load_named(fields["name"]) | fields if fields.get("name") in list_strategies() else fields


def _load_named(name: str) -> dict[str, Any]:
    text = (resources.files("seqfit.strategy") / "library" / f"{name}.yaml").read_text("utf-8")
    return {"name": name, **(read_yaml(text)[0] or {})}


def _explain_name(name: str) -> Mistake:
    sentence = complain(
        f"'{name}' is given",
        f"the strategies are {', '.join(list_strategies())}",
        f"Choose one, or give fields such as strategy.precision=fp32.{did_you_mean(name, list_strategies())}",
    )
    return ("strategy",), sentence


def _explain_word(word: str) -> Mistake:
    sentence = complain(
        f"'{word}' is given",
        f"the lossy strategies are {', '.join(LOSSY)}",
        f"Remove it or correct it.{did_you_mean(word, LOSSY)}",
    )
    return ("allow",), sentence


def _explain_lossy(kind: str, allow: Sequence[str]) -> Mistake:
    sentence = complain(
        f"the strategy uses {kind}, but the recipe allows {list(allow)}",
        "a lossy strategy changes the update and is used only where the recipe names it",
        f"Add it with 'allow=[{', '.join([*allow, kind])}]', or set strategy.precision=fp32",
    )
    return ("allow",), sentence
