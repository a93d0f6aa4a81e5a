from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.generation import GenerationOptions


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"beams": 0}, "beams is 0. It is a whole number from 1 on"),
        ({"beams": True}, "beams is True"),
        ({"n_best": 1.5}, "n_best is 1.5"),
        ({"sample": True, "temperature": 0}, "temperature is 0. It is a number above 0"),
        ({"sample": True, "top_p": 1.2}, "top_p is 1.2"),
        ({"sample": True, "top_p": float("nan")}, "top_p is nan"),
        ({"top_k": 5}, "Only sampling uses it"),
        ({"early_stopping": "always"}, "early_stopping is 'always'"),
        ({"min_new_tokens": 9, "max_new_tokens": 5}, "max_new_tokens is 5"),
        ({"labels": "yes"}, "a tuple of texts"),
        ({"labels": ("yes", "yes")}, "Each label is there once"),
        ({"labels": ("yes", "no"), "n_best": 3}, "2 labels are given"),
        ({"labels": ("yes", "no"), "spans_of": "context"}, "a text is one or the other"),
        ({"lookup": True, "beams": 2}, "a greedy search"),
    ],
)
def test_a_wrong_option_is_named_with_its_rule(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        GenerationOptions(**given)
    assert expected in str(caught.value)
    assert caught.value.change


def test_sampling_draws_among_all_tokens_by_default() -> None:
    """transformers' default would be the 50 likeliest."""
    assert GenerationOptions(sample=True).to_transformers()["top_k"] == 0
    assert GenerationOptions().to_transformers() == {}
