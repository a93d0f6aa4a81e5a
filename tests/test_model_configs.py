"""The configs that come with seqfit: each model has as many parameters as was published, built as a plan builds it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqfit.model.load import ModelConfig
from seqfit.model_configs import KnownModel, find_known_model, load_known_models
from seqfit.recipe.schema import ModelRecipe

FIRST_OF_EACH = list(
    {repr(sorted(model.config.items(), key=str)): model for model in load_known_models().values()}.values()
)


def build(model: KnownModel) -> ModelConfig:
    recipe = ModelRecipe.model_validate({"name": model.name, "kind": model.kind, "weights": "random"})
    return ModelConfig.load(recipe, may_be_known=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # transformers' DeBERTa
@pytest.mark.parametrize("model", FIRST_OF_EACH, ids=lambda model: model.name)
def test_a_model_has_the_published_number_of_parameters(model: KnownModel) -> None:
    recipe = ModelRecipe.model_validate({"name": model.name, "kind": model.kind, "weights": "random"})
    with torch.device("meta"):
        built = build(model).build(recipe)
    count = sum(parameter.numel() for parameter in built.parameters())
    assert count == pytest.approx(model.parameters, rel=0.01)


def test_about_sixty_models_are_known_under_more_names() -> None:
    assert len(FIRST_OF_EACH) >= 60
    assert len(load_known_models()) >= 100
    assert all(model.source and "/" in name for name, model in load_known_models().items())


def test_no_two_models_are_called_alike_without_their_owners() -> None:
    names = [name.partition("/")[2].lower() for name in load_known_models()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("google/flan-t5-large", "google/flan-t5-large"),
        ("Flan-T5-Large", "google/flan-t5-large"),
        ("t5-base", "google-t5/t5-base"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
    ],
)
def test_a_model_is_found_with_and_without_its_owner(name: str, found: str) -> None:
    known = find_known_model(name)
    assert known is not None
    assert known.name == found


def test_a_fine_tuned_model_is_not_taken_for_the_one_it_was_made_from() -> None:
    assert find_known_model("somebody/flan-t5-large") is None


def test_a_folder_of_that_name_counts_more_than_the_known_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "google" / "mt5-small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "mt5", "d_model": 48}')
    known = find_known_model("google/mt5-small")
    assert known is not None
    assert build(known).config.d_model == 48


def test_only_plans_use_the_known_configs() -> None:
    from seqfit.errors import ModelError

    with pytest.raises(ModelError, match=r"its config does not load|was not downloaded before"):
        ModelConfig.load(ModelRecipe(name="google/mt5-small"))
