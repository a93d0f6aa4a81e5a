"""Whatever a recipe holds: it is a recipe, or a RecipeError that lists its mistakes."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seqfit.errors import RecipeError
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.yaml_text import read_yaml

GOOD: dict[str, Any] = {
    "model": {"path": "m"},
    "task": {"name": "qa", "source": "{q}", "target": "{a}"},
    "data": {"path": "d"},
}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
parts = st.sampled_from(
    [*Recipe.model_fields, "train.steps", "train.schedule", "eval.metrics", "task.source", "data.holdout"]
)


@given(parts, values)
@settings(deadline=None, max_examples=200)
def test_any_value_anywhere_is_taken_or_explained(place: str, value: Any) -> None:
    recipe: dict[str, Any] = {name: dict(part) for name, part in GOOD.items()}
    *folders, last = place.split(".")
    inside = recipe
    for folder in folders:
        inside = inside.setdefault(folder, {})
    inside[last] = value
    try:
        loaded = load_recipe(recipe)
    except RecipeError:
        pass
    else:
        again, _ = read_yaml(dump_recipe(loaded))
        assert load_recipe(again) == loaded


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_override_is_taken_or_explained(override: str) -> None:
    with contextlib.suppress(RecipeError):
        assert load_recipe(GOOD, [override]).model.path == "m" or "model" in override
