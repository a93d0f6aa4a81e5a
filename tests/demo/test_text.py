"""The demo's promise, that a held-out answer can't be known, only read, held against all of its text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import text as demo_text
from transformers import AutoTokenizer

SPLITS = ("train", "validation", "test")
HELD_OUT = ("validation", "test")


def load_rows(split: str) -> list[dict[str, str]]:
    lines = (demo_text.LIBRARY_FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def splits() -> dict[str, list[demo_text.Fact]]:
    return demo_text.split_facts(demo_text.load_facts())


@pytest.fixture(scope="module")
def held_out(splits: dict[str, list[demo_text.Fact]]) -> demo_text.PhraseFinder:
    return demo_text.PhraseFinder(demo_text.held_out_phrases(splits))


@pytest.fixture(scope="module")
def offenders(held_out: demo_text.PhraseFinder) -> dict[str, list[object]]:
    """Documents of the pretraining text that break a promise: a tenth of every stage, 22,900 of them.

    All would take half a minute, and what a document may name is decided for each in the same way.
    """
    found: dict[str, list[object]] = {"names an entity": [], "asks": []}
    stages = [replace(stage, documents=stage.documents // 10) for stage in demo_text.PRETRAINING_STAGES]
    for document in demo_text.iterate_pretraining(stages=stages):
        if held_out.find(f"{document.source} | {document.target}"):
            found["names an entity"].append(document)
        if "question:" in document.source or "?" in document.source:
            found["asks"].append(document)
    return found


def test_shipped_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    demo_text.write_question_answering(tmp_path)
    for split in SPLITS:
        shipped = (demo_text.LIBRARY_FOLDER / f"{split}.jsonl").read_bytes()
        assert (tmp_path / f"{split}.jsonl").read_bytes() == shipped, split


def test_a_phrase_is_found_as_whole_words_only_and_in_any_case() -> None:
    finder = demo_text.PhraseFinder([("buenos", "aires"), ("niger",)])
    assert finder.find("El río de BUENOS aires, Niger.") == {("buenos", "aires"), ("niger",)}
    assert finder.find("Nigeria, Aires Buenos") == set()


def test_no_held_out_entity_occurs_in_the_train_file(held_out: demo_text.PhraseFinder) -> None:
    for row in load_rows("train"):
        assert not held_out.find(" | ".join((row["question"], row["context"], row["answer"]))), row


def test_no_held_out_entity_occurs_in_any_stage_of_the_pretraining_text(offenders: dict[str, list[object]]) -> None:
    assert offenders["names an entity"] == []


def test_validation_and_test_share_no_entity(splits: dict[str, list[demo_text.Fact]]) -> None:
    names = [
        {
            phrase
            for fact in splits[split]
            for side in (fact.subject, fact.object)
            for phrase in demo_text.key_phrases(side)
        }
        for split in HELD_OUT
    ]
    assert not names[0] & names[1]


@pytest.mark.parametrize("split", HELD_OUT)
def test_held_out_rows_ask_about_held_out_facts(split: str, splits: dict[str, list[demo_text.Fact]]) -> None:
    facts = {(fact.relation, fact.object.name(language)) for fact in splits[split] for language in demo_text.LANGUAGES}
    for row in load_rows(split):
        assert (row["relation"], row["answer"]) in facts, row


@pytest.mark.parametrize("split", SPLITS)
def test_answers_are_spans_of_their_contexts(split: str) -> None:
    for row in load_rows(split):
        assert row["answer"] in row["context"], row


@pytest.mark.parametrize("split", SPLITS)
def test_rows_are_half_english_and_half_spanish(split: str) -> None:
    languages = [row["language"] for row in load_rows(split)]
    assert len(languages) == demo_text.QUESTION_ROWS[split]
    assert languages.count("en") == languages.count("es")


def test_the_prompt_of_the_demo_never_occurs_in_pretraining_text(offenders: dict[str, list[object]]) -> None:
    assert offenders["asks"] == []


def test_the_subject_stands_in_the_question_and_in_the_context() -> None:
    for split in SPLITS:
        for row in load_rows(split):
            assert row["subject"] in row["question"], row
            assert row["subject"] in row["context"], row
            assert row["context"].count(row["answer"]) >= 1, row


def test_tokenizer_gives_every_shipped_text_back() -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_text.LIBRARY_FOLDER / "model")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    texts = {row[key] for split in SPLITS for row in load_rows(split) for key in ("question", "context", "answer")}
    texts |= {"¿Ñandú? ¡Çà va! (25 % de 1.234,56 €)", "Привет, 東京 🙂"}
    for original in sorted(texts):
        ids = tokenizer(original)["input_ids"]
        assert ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == original
