from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from seqfit.data.tables import find_tables
from seqfit.errors import RecipeError
from seqfit.recipe.library import copy_recipe, library_names, list_library
from seqfit.recipe.load import load_recipe
from seqfit.tasks import build_task

HUB_MODELS = {
    "mt5-squad-es": "google/mt5-small",
    "t5-summarize": "google-t5/t5-base",
    "unifiedqa-causal": "allenai/unifiedqa-v2-t5-base-1363200",
    "t5-gsm8k": "google-t5/t5-base",
    "t5-bioqa": "google-t5/t5-base",
    "bert-agnews": "google-bert/bert-base-uncased",
    "t5-wmt14": "google-t5/t5-small",
}
LOCAL = {
    "mt5-squad-es": "squad_es/dev-v1.1-es_small.json",
    "t5-summarize": "dialogsum",
    "unifiedqa-causal": "causal_qa",
    "t5-gsm8k": "gsm8k",
    "t5-bioqa": "pubmedqa",
    "bert-agnews": "ag_news",
    "t5-wmt14": "multi30k",
}


def test_the_library_has_the_promised_recipes() -> None:
    assert set(library_names()) == {*HUB_MODELS, "demo"}


@pytest.mark.parametrize(("name", "model"), HUB_MODELS.items())
def test_each_names_its_model_on_the_hub(name: str, model: str) -> None:
    assert load_recipe(name).model.name == model


@pytest.mark.parametrize("name", [name for name in HUB_MODELS if name != "unifiedqa-causal"])
def test_each_names_its_data_set_on_the_hub(name: str) -> None:
    assert load_recipe(name).sources[0].hub is not None


def test_every_entry_has_a_description_of_one_line() -> None:
    assert all(entry.description and "\n" not in entry.description for entry in list_library())


@pytest.mark.parametrize(("name", "place"), LOCAL.items())
def test_each_reads_the_published_files_by_data_path_alone(name: str, place: str, shared_data: Path) -> None:
    recipe = load_recipe(name, [f"data.path={shared_data / place}"])
    task = build_task(recipe.task)
    for table in find_tables(recipe.sources[0]).values():
        for number, row in enumerate(itertools.islice(table.read(), 50)):
            example = task.render(row, str(number))
            assert example.source.startswith(recipe.task.prefix)
            assert example.references


def test_unifiedqa_joins_by_a_backslash_and_an_n() -> None:
    task = build_task(load_recipe("unifiedqa-causal").task)
    row = {"question_processed": "why is it so", "context_processed": "it is", "answer": "Because."}
    assert task.render(row, "1").source == "why is it so \\n it is"
    assert task.render(row | {"context_processed": ""}, "1").source == "why is it so"


def test_a_test_dialogue_has_three_references() -> None:
    task = build_task(load_recipe("t5-summarize").task)
    row = {"dialogue": "Hi.", "summary1": "a", "summary2": "b", "summary3": "c"}
    assert task.render(row, "1").references == ("a", "b", "c")
    assert task.render({"dialogue": "Hi.", "summary": "a"}, "1").references == ("a",)


def test_learning_rates_are_in_the_range_of_their_optimizer() -> None:
    for name in HUB_MODELS:
        train = load_recipe(name).train
        if train.optimizer.name == "adafactor":
            assert (train.learning_rate, train.schedule.name) == (1e-3, "constant")
        elif load_recipe(name).model.kind == "text-to-text":
            assert 1e-4 <= train.learning_rate <= 3e-4


class TestCopy:
    @pytest.mark.parametrize("name", library_names())
    def test_a_copy_means_the_same_and_keeps_its_comments(self, name: str, tmp_path: Path) -> None:
        file = copy_recipe(name, tmp_path / "mine.yaml")
        assert load_recipe(file) == load_recipe(name)
        assert "#" in file.read_text(encoding="utf-8")

    def test_a_folder_gets_a_file_of_the_recipes_name(self, tmp_path: Path) -> None:
        assert copy_recipe("demo", tmp_path) == tmp_path / "demo.yaml"

    def test_a_file_that_is_there_is_not_overwritten(self, tmp_path: Path) -> None:
        file = copy_recipe("demo", tmp_path)
        with pytest.raises(RecipeError, match="already exists"):
            copy_recipe("t5-gsm8k", file)

    def test_an_unknown_name_suggests_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(RecipeError, match="Did you mean 'demo'"):
            copy_recipe("dem", tmp_path)

    def test_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RecipeError, match="No such file or directory"):
            copy_recipe("demo", tmp_path / "no" / "mine.yaml")


def test_no_description_names_a_model_which_an_override_may_replace() -> None:
    """A model of 22.7M weights stood under the title 'BERT-base'."""
    for entry in list_library():
        assert not any(word in entry.description for word in ("BERT", "T5", "UnifiedQA")), entry.name
