from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqfit
from seqfit.cache import cache_root
from seqfit.data import PreparedData, TokenizedSplit, prepare_data, splits, tokenize
from seqfit.data.encode import TextEncoder
from seqfit.data.file_tables import DataTable
from seqfit.data.rows import BadRow, BadRows
from seqfit.data.tokenized import HashedFile
from seqfit.errors import DataError
from seqfit.recipe.schema import Recipe
from seqfit.tasks import Example
from tests.processes import started

QA = {"name": "qa", "source": "{question}[[ {context}]]", "target": "{answer}"}
CLASSES = {"name": "classify", "source": "{question}", "target": "{label}", "labels": ["no", "yes"]}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {"question": f"q{n}", "context": f"c{n // 2}", "answer": f"a{n}", "label": "yes" if n % 2 else "no"}
        for n in range(60)
    ]
    path = tmp_path / "data"
    path.mkdir()
    (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (path / "dev.jsonl").write_text(json.dumps(rows[0] | {"id": "dev-0"}) + "\n", "utf-8")
    return path


def _recipe(data: Any, task: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    data = {"path": str(data), "holdout": {}} if isinstance(data, Path) else data
    return Recipe.model_validate({"model": {"path": "m"}, "task": task or QA, "data": data} | fields)


@pytest.fixture
def count_texts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many texts have been tokenized since the last call."""
    counted = [0]

    def count_in(real: Callable[..., list[list[int]]]) -> Callable[..., list[list[int]]]:
        def encode(self: TextEncoder, texts: list[str], languages: Any = None) -> list[list[int]]:
            counted[0] += len(texts)
            return real(self, texts, languages)

        return encode

    def take() -> int:
        count, counted[0] = counted[0], 0
        return count

    monkeypatch.setattr(TextEncoder, "encode", count_in(TextEncoder.encode))
    monkeypatch.setattr(TextEncoder, "encode_targets", count_in(TextEncoder.encode_targets))
    return take


def test_rows_are_rendered_and_tokenized(folder: Path, tokenizer: Any) -> None:
    prepared = prepare_data(_recipe(folder), tokenizer)
    train, dev = prepared.splits["train"], prepared.splits["validation"]
    assert (len(train), len(dev)) == (60, 1)
    assert train.text(3) == Example("4", "q3 c1", "a3", ("a3",), "c1")
    assert dev.text(0).id == "dev-0"
    source, target = train.token_ids(3)
    assert source.tolist() == tokenizer("q3 c1")["input_ids"]
    assert target.tolist() == tokenizer("a3")["input_ids"]
    assert source.dtype == np.int32
    assert train.source_lengths[3] == len(source)
    assert train.target_lengths.tolist() == [len(train.token_ids(row)[1]) for row in range(60)]
    assert train.label(3) == -1
    with pytest.raises(IndexError):
        train.token_ids(60)


def test_the_second_call_tokenizes_nothing(folder: Path, tokenizer: Any, count_texts: Callable[[], int]) -> None:
    first = prepare_data(_recipe(folder), tokenizer)
    assert count_texts() == 122
    second = prepare_data(_recipe(folder), tokenizer)
    assert count_texts() == 0
    assert second.fingerprint == first.fingerprint
    assert second.events == first.events


@pytest.mark.parametrize(
    "change",
    [
        {"task": QA | {"prefix": "answer: "}},
        {"task": QA | {"max_source_tokens": 3}},
        {"seed": 1},
    ],
)
def test_whatever_decides_the_content_makes_a_new_entry(
    folder: Path, tokenizer: Any, count_texts: Callable[[], int], change: dict[str, Any]
) -> None:
    first = prepare_data(_recipe(folder), tokenizer)
    count_texts()
    second = prepare_data(_recipe(folder, **change), tokenizer)
    assert count_texts() == 122
    assert second.fingerprint != first.fingerprint


def test_what_decides_nothing_finds_the_entry(
    folder: Path, tokenizer: Any, count_texts: Callable[[], int], tmp_path: Path
) -> None:
    prepare_data(_recipe(folder), tokenizer)
    count_texts()
    prepare_data(_recipe(folder, task=QA | {"language": "es"}, train={"epochs": 9}), tokenizer)
    folder.rename(tmp_path / "elsewhere")
    prepare_data(_recipe(tmp_path / "elsewhere"), tokenizer)
    assert count_texts() == 0


def test_a_changed_file_makes_a_new_entry(folder: Path, tokenizer: Any, count_texts: Callable[[], int]) -> None:
    prepare_data(_recipe(folder), tokenizer, ["validation"])
    (folder / "dev.jsonl").write_text('{"question": "other", "answer": "b", "context": "c"}\n', "utf-8")
    count_texts()
    assert prepare_data(_recipe(folder), tokenizer, ["validation"]).splits["validation"].text(0).target == "b"
    assert count_texts() == 2


def test_long_texts_are_truncated_counted_and_reported(folder: Path, tokenizer: Any) -> None:
    task = QA | {"max_source_tokens": 6, "max_target_tokens": 2}
    prepared = prepare_data(_recipe(folder, task=task), tokenizer, ["train"])
    split = prepared.splits["train"]
    source, target = split.token_ids(59)
    assert (len(source), source[-1], len(target), target[-1]) == (6, 1, 2, 1)
    assert split.truncated_sources == 50  # 'q0 c0' has five bytes and an end, 'q10 c5' one more
    assert split.truncated_targets == 60
    assert split.facts[0].longest_source == 8
    assert "train: 50 of 60 sources truncated to 6 tokens (83.3%)" in prepared.events
    assert split.text(59).source == "q59 c29"


def test_an_interrupted_preparation_is_done_again(
    folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tokenize, "to_lists", _raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_data(_recipe(folder), tokenizer)
    assert list((cache_root() / "tokenized").iterdir()) == []
    assert len(prepare_data(_recipe(folder), tokenizer).splits["train"]) == 60


def test_a_disk_that_fills_up_says_which_variable_to_set(
    folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: HashedFile, data: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(HashedFile, "write", write)
    with pytest.raises(DataError, match="SEQFIT_CACHE"):
        prepare_data(_recipe(folder), tokenizer)
    assert list((cache_root() / "tokenized").iterdir()) == []


def _raise_interrupt(*_: Any) -> dict[str, list[Any]]:
    raise KeyboardInterrupt


PREPARE = """
import sys
from transformers import ByT5Tokenizer
from seqfit.data.tokenize import prepare_data
from seqfit.recipe.schema import Recipe
print(prepare_data(Recipe.model_validate_json(sys.argv[1]), ByT5Tokenizer()).fingerprint)
"""


def test_two_processes_at_once_do_not_break_each_other(folder: Path, tokenizer: Any) -> None:
    recipe = _recipe(folder)
    environment = os.environ | {"PYTHONPATH": str(Path(seqfit.__file__).parents[1])}
    command = [sys.executable, "-c", PREPARE, recipe.model_dump_json()]
    settings: dict[str, Any] = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    with started(command, **settings) as one, started(command, **settings) as other:
        processes = [one, other]
        found = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert found == {prepare_data(recipe, tokenizer).fingerprint}
    assert not [path for path in (cache_root() / "tokenized").iterdir() if path.name.startswith(".")]


def test_sources_are_joined_with_their_weights(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("question,answer\nx,y\n", "utf-8")
    task = QA | {"source": ["{question} {context}", "{question}"]}
    data = [{"path": str(folder), "holdout": {}}, {"path": str(other), "holdout": {}, "weight": 3.0, "label": "more"}]
    prepared = prepare_data(_recipe(data, task=task), tokenizer)
    split = prepared.splits["train"]
    assert (split.titles, split.weights) == (["data", "more"], [1.0, 3.0])
    assert split.source_index.tolist() == [0] * 60 + [1]
    assert split.text(60) == Example("1", "x", "y", ("y",), "x")
    assert len(prepared.splits["validation"]) == 1
    assert "more: validation: no rows, because data.holdout.validation is 0" in prepared.events


def test_a_classifier_has_labels_and_no_targets(folder: Path, tokenizer: Any) -> None:
    recipe = _recipe(folder, task=CLASSES, model={"path": "m", "kind": "classifier"})
    split = prepare_data(recipe, tokenizer).splits["train"]
    assert [split.label(row) for row in range(3)] == [0, 1, 0]
    assert split.target_lengths.sum() == 0
    assert split.token_ids(0)[1].tolist() == []


def test_classes_as_text_have_the_label_word_as_target(folder: Path, tokenizer: Any) -> None:
    split = prepare_data(_recipe(folder, task=CLASSES), tokenizer).splits["train"]
    assert split.token_ids(1)[1].tolist() == tokenizer("yes")["input_ids"]
    assert split.label(1) == 1


def test_a_classifier_is_truncated_to_its_positions(folder: Path) -> None:
    from transformers import ByT5Tokenizer

    recipe = _recipe(folder, task=CLASSES, model={"path": "m", "kind": "classifier"})
    split = prepare_data(recipe, ByT5Tokenizer(), position_limit=3).splits["train"]
    assert split.source_lengths.max() == 3
    text = prepare_data(_recipe(folder, task=CLASSES), ByT5Tokenizer(model_max_length=3)).splits["train"]
    assert text.source_lengths.max() == 4


def test_a_split_pickles_as_its_files(folder: Path, tokenizer: Any) -> None:
    split = prepare_data(_recipe(folder), tokenizer).splits["train"]
    pickled = pickle.dumps(split)
    assert len(pickled) < 1000
    again: TokenizedSplit = pickle.loads(pickled)
    assert again.text(7) == split.text(7)
    assert np.array_equal(again.token_ids(7)[0], split.token_ids(7)[0])


def test_progress_and_events_are_reported(folder: Path, tokenizer: Any) -> None:
    steps: list[tuple[str, int, int | None]] = []
    events: list[tuple[str, str]] = []
    recipe = _recipe({"path": str(folder / "train.jsonl")})
    prepared = prepare_data(
        recipe, tokenizer, progress=lambda *step: steps.append(step), events=lambda *event: events.append(event)
    )
    assert ("train.jsonl: tokenizing train and validation", 54, 54) in steps
    assert ("train.jsonl: splitting", 60, 60) in steps
    assert events == [("data", event) for event in prepared.events]
    assert (
        "data",
        "validation: split from train.jsonl (10.0% of its groups; rows with the same context or source are one group)",
    ) in events


def _append(file: Path, *rows: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(json.dumps(row) + "\n" for row in rows)


EMPTY = {"question": "q", "context": "c", "answer": ""}


def test_rows_that_cannot_be_used_are_left_out_counted_and_reported(folder: Path, tokenizer: Any) -> None:
    _append(folder / "train.jsonl", EMPTY, {"question": "\ud83d", "context": "c", "answer": "a"}, EMPTY)
    prepared = prepare_data(_recipe(folder), tokenizer)
    train = prepared.splits["train"]
    assert len(train) == train.facts[0].rows == 60
    assert "train: 3 of 63 rows left out (4.8%): 2 empty target (rows 61, 63), 1 unpaired surrogate (row 62)" in (
        prepared.events
    )
    empty, surrogate = train.facts[0].bad_rows
    assert (empty.cause, empty.rows, [number for number, _ in empty.examples]) == ("empty target", 2, [61, 63])
    assert "has an empty target" in empty.examples[0][1]
    assert surrogate.examples[0][0] == 62
    assert [(bad["split"], bad["cause"], bad["rows"], bad["of"]) for bad in prepared.left_out] == [
        ("train", "empty target", 2, 63),
        ("train", "unpaired surrogate", 1, 63),
    ]
    assert prepare_data(_recipe(folder), tokenizer).splits["train"].facts == train.facts


def test_what_a_reader_cannot_read_is_left_out_as_well(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        BadRow("broken JSON", "line 1: no value"),
        *({"question": f"q{n}", "context": "", "answer": "a"} for n in range(30)),
    ]
    monkeypatch.setattr(splits, "find_tables", lambda source, named: {"all": DataTable("rows", (), lambda: iter(rows))})
    prepared = prepare_data(_recipe({"path": "rows"}), tokenizer, ["train", "validation", "test"])
    parts = [split.facts[0] for split in prepared.splits.values()]
    assert sum(part.rows for part in parts) == 30
    assert [bad for part in parts for bad in part.bad_rows] == [
        BadRows("broken JSON", 1, ((1, "line 1: no value"),), unread=True)
    ]


def test_too_many_bad_rows_are_one_error_with_the_causes_of_all_splits(folder: Path, tokenizer: Any) -> None:
    _append(folder / "train.jsonl", *[EMPTY] * 9)
    _append(folder / "dev.jsonl", {"context": "no question", "answer": "a"})
    with pytest.raises(DataError) as error:
        prepare_data(_recipe(folder), tokenizer)
    text = str(error.value)
    assert text.startswith("data: 10 of 71 rows can't be used (13.0% of train.jsonl, 50.0% of dev.jsonl).")
    assert "- empty target: 9 (train: 9, rows 61, 62, 63, 64, 65, ...). For example row 61: Row 61 has" in text
    assert "- column missing: 1 (validation: 1, row 2). For example row 2: The template" in text
    assert text.endswith("data.max_bad_rows=0.5 trains without them.")
    allowed = _recipe({"path": str(folder), "holdout": {}, "max_bad_rows": 0.5})
    assert len(prepare_data(allowed, tokenizer).splits["train"]) == 60
    assert len(prepare_data(_recipe(folder), tokenizer, allow_bad_rows=True).splits["validation"]) == 1


def test_a_table_with_too_many_bad_rows_is_not_tokenized(
    folder: Path, tokenizer: Any, count_texts: Callable[[], int]
) -> None:
    lines = (folder / "train.jsonl").read_text("utf-8")
    (folder / "train.jsonl").write_text((json.dumps(EMPTY) + "\n") * 20 + lines, "utf-8")
    with pytest.raises(DataError, match=r"20 of 68 rows can't be used \(29\.4% of train\.jsonl\)"):
        prepare_data(_recipe({"path": str(folder / "train.jsonl"), "holdout": {"test": 0.2}}), tokenizer, ["train"])
    assert count_texts() == 0


def test_where_every_row_is_bad_that_comes_first(folder: Path, tokenizer: Any) -> None:
    task = QA | {"source": "{qestion}"}
    for allow in (True, False):
        with pytest.raises(
            DataError, match=r"^data: none of the 61 rows can be used\. Every split needs usable rows"
        ) as error:
            prepare_data(_recipe(folder, task=task), tokenizer, allow_bad_rows=allow)
        assert "Did you mean 'question'" in str(error.value)
        assert "max_bad_rows=" not in str(error.value)


def test_bad_rows_of_splits_of_one_file_are_counted_together(folder: Path, tokenizer: Any) -> None:
    _append(folder / "train.jsonl", EMPTY, EMPTY | {"context": "other"})
    file = {"path": str(folder / "train.jsonl"), "holdout": {"validation": 0.05, "test": 0.05}}
    prepared = prepare_data(_recipe(file), tokenizer, ["train", "validation", "test"])
    assert sum(len(split) for split in prepared.splits.values()) == 60


@pytest.mark.parametrize("kind", ["bytes", "t5"])
def test_the_files_are_the_same_whatever_the_number_of_threads(
    kind: str, folder: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    if kind == "t5":
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(request.getfixturevalue("shared_tokenizers") / "t5")
    monkeypatch.setattr(tokenize, "_BATCH_ROWS", 7)
    made = []
    for cores in (1, 2, 5):
        monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / f"cache-{cores}"))
        monkeypatch.setattr(tokenize, "usable_cores", lambda cores=cores: cores)
        prepared = prepare_data(_recipe({"path": str(folder / "train.jsonl")}), tokenizer)
        entries = sorted((cache_root() / "tokenized").iterdir())
        made.append((prepared.fingerprint, [(file.name, file.read_bytes()) for e in entries for file in e.iterdir()]))
    assert made[0] == made[1] == made[2]


def test_long_rows_make_small_batches(folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "_BATCH_CHARACTERS", 30)
    split = prepare_data(_recipe(folder), tokenizer, ["train"]).splits["train"]
    assert len(split._batches) > 10
    assert split.text(59).source == "q59 c29"


def test_an_optional_column_that_no_row_has_is_an_error(folder: Path, tokenizer: Any) -> None:
    with pytest.raises(DataError, match="contxt"):
        prepare_data(_recipe(folder, task=QA | {"source": "{question}[[ {contxt}]]"}), tokenizer)


def test_no_training_rows_are_an_error(folder: Path, tokenizer: Any) -> None:
    (folder / "train.jsonl").unlink()
    with pytest.raises(DataError, match=r"no training rows.*data\.holdout\.validation=0\.1"):
        prepare_data(_recipe(folder), tokenizer)
    assert list(prepare_data(_recipe(folder), tokenizer, ["validation"]).splits) == ["validation"]


def test_a_corrupted_entry_is_written_again_and_reported(folder: Path, tokenizer: Any) -> None:
    whole = prepare_data(_recipe(folder), tokenizer, ["validation"])
    entry = next((cache_root() / "tokenized").iterdir())
    (entry / "rows.arrow").write_bytes(b"gone")
    again = prepare_data(_recipe(folder), tokenizer, ["validation"])
    assert [event for event in again.events if "corrupted, tokenizing again" in event]
    assert again.fingerprint == whole.fingerprint
    assert len(again.splits["validation"]) == len(whole.splits["validation"])


def _prepare_real(data: dict[str, Any], task: dict[str, Any], tokenizer: Path) -> PreparedData:
    from transformers import AutoTokenizer

    return prepare_data(_recipe(data, task=task), AutoTokenizer.from_pretrained(tokenizer))


def test_real_spanish_questions_with_mt5(shared_data: Path, shared_tokenizers: Path) -> None:
    data = {
        "path": str(shared_data / "squad_es"),
        "splits": {"validation": "dev-v2.0-es_small.json"},
        "limit": {"train": 300, "validation": 50},
    }
    task = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answers.text}"}
    prepared = _prepare_real(data, task, shared_tokenizers / "mt5")
    train = prepared.splits["train"]
    assert (len(train), len(prepared.splits["validation"])) == (300, 50)
    assert 200 < train.source_lengths.mean() < 300
    assert all(train.token_ids(row)[side][-1] == 1 for row in range(300) for side in (0, 1))
    groups = [{split.text(row).group for row in range(len(split))} for split in prepared.splits.values()]
    assert not groups[0] & groups[1]


def test_real_translations_with_t5(shared_data: Path, shared_tokenizers: Path) -> None:
    data = {"path": str(shared_data / "multi30k"), "languages": ["en", "de"], "splits": {"train": "val"}, "holdout": {}}
    task = {"name": "translate", "prefix": "translate English to German: ", "source": "{en}", "target": "{de}"}
    train = _prepare_real(data, task, shared_tokenizers / "t5").splits["train"]
    assert len(train) == 1014
    assert train.text(0).source.startswith("translate English to German: A group of men")
