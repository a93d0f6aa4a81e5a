"""Tiny files and a tokenizer of letters: every figure can be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seqfit.inspection.describe import describe_columns_only, describe_recipe_data
from seqfit.inspection.report import DataReport
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe

LETTERS = "abcdefghij ?"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter; only a to j, the space and '?' are known."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "</s>", "<unk>", *LETTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def _write(path: Path, rows: list[tuple[str, str, str]]) -> None:
    lines = (json.dumps({"question": q, "context": c, "answer": a}, ensure_ascii=False) for q, c, a in rows)
    path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    train = [("a?", "bcd", "b"), ("a?", "bcd", "b"), ("a?", "bcd", "c"), ("ñ?", "efghijabcdefghij", "d")]
    _write(tmp_path / "train.jsonl", train)
    _write(tmp_path / "validation.jsonl", [("a?", "bcd", "b"), ("h?", "jjj", "j")])
    _write(tmp_path / "test.jsonl", [("g?", "bcd", "b")])
    return _load(tmp_path)


def _load(folder: Path, **task: Any) -> Recipe:
    return load_recipe(
        {
            "description": "letters",
            "model": {"name": "none"},
            "task": {"name": "qa", "source": "{question} {context}", "target": "{answer}", **task},
            "data": {"path": str(folder)},
            "train": {"batch_examples": 2},
        }
    )


def test_rows_lengths_and_truncations_are_counted(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    task = recipe.task.model_copy(update={"max_source_tokens": 10})
    report = describe_recipe_data(recipe.model_copy(update={"task": task}), tokenizer)
    train, validation, test = report.splits
    assert [split.rows for split in report.splits] == [4, 2, 1]
    assert (train.source.minimum, train.source.maximum) == (7, 20)  # 'a? bcd' and the end; uncut
    assert (train.source.truncated_rows, train.source.truncated_share) == (1, 0.25)
    assert train.target is not None
    assert train.target.mean == 2
    assert validation.source.truncated_rows == test.source.truncated_rows == 0


def test_an_example_is_shown_as_the_model_sees_it(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    task = recipe.task.model_copy(update={"max_source_tokens": 5})
    example = describe_recipe_data(recipe.model_copy(update={"task": task}), tokenizer).splits[0].examples[0]
    assert [token.text for token in example.source_tokens.head] == ["a", "?", " ", "b", "</s>"]
    assert [token.special for token in example.source_tokens.head] == [False] * 4 + [True]
    assert example.source == "a? bcd"
    assert example.source_tokens.left_out == 0


def test_a_long_example_is_shortened_in_the_middle(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    _write(tmp_path / "train.jsonl", [(f"{'a' * 100}?", letter, letter) for letter in "abcdefghij"])
    view = describe_recipe_data(_load(tmp_path), tokenizer).splits[0].examples[0].source_tokens
    assert (len(view.head), view.left_out, len(view.tail)) == (28, 68, 8)
    assert view.tail[-1].text == "</s>"


def test_tokens_are_counted_over_sources_and_targets(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    use = describe_recipe_data(recipe, tokenizer).splits[0].tokens
    assert use.tokens == 3 * 7 + 20 + 4 * 2
    assert use.vocabulary == len(tokenizer)
    assert use.unknown == 1  # ñ
    assert use.never_used == 1  # <pad>
    assert (use.most_frequent[0].token, use.most_frequent[0].count) == ("</s>", 8)


def test_repeats_and_overlap_are_found_with_an_example(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    report = describe_recipe_data(recipe, tokenizer)
    assert (report.splits[0].repeats.same_pair, report.splits[0].repeats.several_targets) == (1, 1)
    validation, test = report.overlaps
    assert (validation.split, validation.same_source, validation.example) == ("validation", 1, "a? bcd")
    assert (test.same_source, test.same_group) == (0, 1)
    assert report.findings[0].startswith("1 of 2 validation sources also occur in train")


def test_a_lost_character_is_named(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    (lost,) = describe_recipe_data(recipe, tokenizer).splits[0].round_trip.lost
    assert (lost.character, lost.name, lost.row_share) == ("ñ", "LATIN SMALL LETTER N WITH TILDE", 0.25)


def test_padding_is_measured_on_what_the_limit_leaves(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    task = recipe.task.model_copy(update={"max_source_tokens": 7})
    waste = describe_recipe_data(recipe.model_copy(update={"task": task}), tokenizer).splits[0].padding
    assert [entry.source for entry in waste] == [1, 1, 1, 1]


def test_rows_looks_at_so_many_only(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    report = describe_recipe_data(recipe, tokenizer, rows=1)
    assert [split.rows for split in report.splits] == [1, 1, 1]


def test_a_classifier_has_labels_instead_of_target_tokens(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    _write(tmp_path / "train.jsonl", [(letter, "b", "yes" if letter < "e" else "no") for letter in "abcdefghij"])
    recipe = load_recipe(
        {
            "model": {"name": "none", "kind": "classifier"},
            "task": {"name": "classify", "source": "{question}", "target": "{answer}", "labels": ["yes", "no"]},
            "data": {"path": str(tmp_path)},
        }
    )
    train = describe_recipe_data(recipe, tokenizer).splits[0]
    assert train.target is None
    assert {example.target_tokens.head[0].text for example in train.examples} <= {"yes", "no"}
    assert train.padding[0].target is None


def test_the_report_is_json_and_progress_is_reported(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    reported: list[tuple[str, int, int | None]] = []
    report = describe_recipe_data(recipe, tokenizer, progress=lambda *step: reported.append(step))
    back = json.loads(json.dumps(report.to_json()))
    assert back["splits"][0]["source"]["maximum"] == 20
    assert ("train: counting tokens", 4, 4) in reported


def test_two_looks_at_the_same_data_agree(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    first, second = describe_recipe_data(recipe, tokenizer), describe_recipe_data(recipe, tokenizer)
    assert isinstance(first, DataReport)
    assert first == second


def test_spanish_needs_more_than_t5s_tokenizer(shared_data: Path, shared_tokenizers: Path) -> None:
    from seqfit.model.load import load_tokenizer

    overrides = [
        f"model.path={shared_tokenizers / 't5'}",
        f"data.path={shared_data / 'squad_es' / 'dev-v1.1-es_small.json'}",
    ]
    recipe = load_recipe("mt5-squad-es", overrides)
    report = describe_recipe_data(recipe, load_tokenizer(recipe.model), rows=200)
    assert [split.rows for split in report.splits] == [200, 200, 200]
    assert any("loses '¿' in 9" in finding and "'ñ'" in finding for finding in report.findings)


class TestWithoutATokenizer:
    def test_lengths_are_words_and_what_needs_a_tokenizer_is_absent(self, recipe: Recipe) -> None:
        report = describe_recipe_data(recipe, None)
        train = report.splits[0]
        assert (report.unit, report.tokenizer, train.rows) == ("words", None, 4)
        assert (train.source.maximum, train.source.limit) == (2, None)
        assert (train.tokens, train.round_trip, train.padding) == (None, None, ())
        assert train.examples[0].source_tokens is None
        assert train.examples[0].source == "a? bcd"

    def test_repeats_and_overlap_are_those_that_tokens_show(
        self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        words, tokens = describe_recipe_data(recipe, None), describe_recipe_data(recipe, tokenizer)
        assert [split.repeats for split in words.splits] == [split.repeats for split in tokens.splits]
        assert words.overlaps == tokens.overlaps
        assert words.columns == tokens.columns

    def test_rows_left_out_are_a_finding_with_its_fix(self, tmp_path: Path) -> None:
        rows = [(f"a{n}?", f"b c{n}", "" if n % 30 == 0 else "d") for n in range(100)]
        _write(tmp_path / "train.jsonl", rows)
        report = describe_recipe_data(_load_generate(tmp_path), None)
        assert sum(entry.rows for entry in report.left_out) == 4
        assert any(
            "4 of 100 rows are left out" in finding and "task.missing_target" in finding for finding in report.findings
        )
        assert report.open_question is None

    def test_too_many_of_them_are_a_question_that_names_all_causes(self, tmp_path: Path) -> None:
        rows = [(f"a{n}?" if n % 5 else "", "", "" if n % 3 == 0 else "d") for n in range(100)]
        _write(tmp_path / "train.jsonl", rows)
        report = describe_recipe_data(_load_generate(tmp_path), None)
        assert report.open_question is not None
        assert "empty target" in report.open_question
        assert "empty source" in report.open_question
        assert "data.max_bad_rows=0.4" in report.open_question

    def test_classes_are_counted_with_and_without_a_tokenizer(
        self, tmp_path: Path, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        _write(
            tmp_path / "train.jsonl", [(letter, "b", "yes" if letter < "c" else "no") for letter in LETTERS[:10] * 4]
        )
        recipe = load_recipe(
            {
                "model": {"name": "none"},
                "task": {"name": "classify", "source": "{question}", "target": "{answer}", "labels": ["yes", "no"]},
                "data": {"path": str(tmp_path)},
            }
        )
        words, tokens = describe_recipe_data(recipe, None), describe_recipe_data(recipe, tokenizer)
        assert [split.classes for split in words.splits] == [split.classes for split in tokens.splits]
        assert sum(entry.count for split in words.splits for entry in split.classes) == 40


def _load_generate(folder: Path) -> Recipe:
    values: dict[str, Any] = {
        "model": {"name": "none"},
        "task": {"name": "summarize", "source": "{question}[[ {context}]]", "target": "{answer}"},
        "data": {"path": str(folder)},
    }
    return load_recipe(values)


def test_columns_say_what_they_are_used_as(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    columns = describe_recipe_data(recipe, tokenizer).columns
    assert {column.name: column.used_as for column in columns} == {
        "question": "source",
        "context": "source",
        "answer": "target",
    }


def test_limits_are_chosen_from_the_lengths(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    limits = describe_recipe_data(recipe, tokenizer).splits[0].limits
    assert [(one.limit, one.rows) for one in limits["source"]] == [(20, 0)]


def test_columns_alone_are_shown_with_the_question(recipe: Recipe) -> None:
    report = describe_columns_only(recipe.sources, "which is it?")
    assert report.open_question == "which is it?"
    assert [column.name for column in report.columns] == ["question", "context", "answer"]
    assert report.first_rows[0] == {"question": "a?", "context": "bcd", "answer": "b"}
    assert "which is it?" in str(report)
