"""Languages, characters and lengths of the texts of a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.inspection.text_facts import TextFacts, read_text_facts
from seqfit.recipe.load import load_recipe

TOKENIZER = Path(__file__).parents[3] / "shared" / "tokenizers" / "t5"


def facts(folder: Path, rows: list[tuple[str, str]], task: str = "generate", **more: object) -> TextFacts:
    file = folder / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"a": source, "b": target}) for source, target in rows), "utf-8")
    labels = {"labels": sorted({target for _, target in rows})} if task == "classify" else {}
    values = {"name": task, "source": "{a}", "target": "{b}", **labels, **more}
    model = {"name": "google/mt5-small"}
    return read_text_facts(load_recipe({"model": model, "task": values, "data": {"path": str(file)}}))


PROSE = "The river is on the left of the road and it goes to the sea."


def test_code_has_no_language_of_its_own(tmp_path: Path) -> None:
    found = facts(tmp_path, [(PROSE, f"for (int i = 0; i < {n}; i++) {{ s += a[i]; }}") for n in range(40)])
    assert found.languages == ("en", "en")
    assert {"{", "}", "<"} <= set(found.lost_by_t5)


def test_prose_in_an_unknown_language_is_not_taken_for_the_sources(tmp_path: Path) -> None:
    found = facts(tmp_path, [(PROSE, "umfula usesandleni sobunxele somgwaqo") for _ in range(40)])
    assert found.languages == ("en", None)


def test_numbers_as_targets_follow_the_source(tmp_path: Path) -> None:
    assert facts(tmp_path, [(PROSE, str(n)) for n in range(40)], task="math").is_english


def test_labels_have_no_language(tmp_path: Path) -> None:
    assert facts(tmp_path, [(PROSE, f"gut {n % 2}") for n in range(40)], task="classify").languages == ("en",)


def test_a_rare_foreign_letter_in_a_source_does_not_matter(tmp_path: Path) -> None:
    rows = [(f"{PROSE * 10} {'Dvořák' if n == 0 else ''}", "It is on the left of the road.") for n in range(40)]
    assert facts(tmp_path, rows).lost_by_t5 == ""


def test_lengths_are_those_that_the_recipe_keeps(tmp_path: Path) -> None:
    found = facts(tmp_path, [(PROSE * 40, "It is on the left.")] * 40, max_source_tokens=100)
    assert found.source.longest == 100


@pytest.mark.skipif(not TOKENIZER.is_dir(), reason="no ../shared/tokenizers/t5")
def test_the_characters_that_t5_lacks_are_those_of_its_tokenizer() -> None:
    from transformers import AutoTokenizer

    from seqfit.inspection.text_facts import _is_lost

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    for char in map(chr, [*range(33, 127), *range(0xA1, 0x180)]):
        is_lost = tokenizer.unk_token_id in tokenizer(char, add_special_tokens=False).input_ids
        assert _is_lost(char) == is_lost or char in "\xadĲĳſ", char


def test_a_stated_language_is_that_of_both_sides_but_not_of_a_translation(tmp_path: Path) -> None:
    rows = [("kofa lemo", "moko tila")] * 40
    assert facts(tmp_path, rows, task="qa").languages == (None, None)
    assert facts(tmp_path, rows, task="qa", language="en").is_english
    assert facts(tmp_path, rows, task="translate", language="en").languages == (None, "en")
