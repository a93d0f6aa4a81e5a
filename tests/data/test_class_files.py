from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.data.file_groups import labels_of
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe


def _write(tmp_path: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = tmp_path / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [("pos__txt", "neg__txt"), ("rt_polarity__pos", "rt_polarity__neg"), ("pos__csv", "neg__csv")],
)
def test_a_file_per_class_gives_texts_and_labels(tmp_path: Path, names: tuple[str, str]) -> None:
    texts = ["a fine film as it was\nvery good in the end\n", "a bad film that it was\nvery dull in the end\n"]
    table = find_tables(SourceRecipe(path=str(_write(tmp_path, **dict(zip(names, texts, strict=True))))))["all"]
    rows = list(table.read())
    assert [row["label"] for row in rows] == ["neg", "neg", "pos", "pos"]
    assert rows[3] == {"text": "very good in the end", "label": "pos"}
    assert table.notes[0] == "one file per class, one text per line; the label is the file's name: neg, pos"


def test_a_folder_per_class_gives_one_text_per_file(tmp_path: Path) -> None:
    files = {f"{label}___{n}__txt": f"text {n}\nof {label}" for label in ("news", "sport") for n in range(3)}
    table = find_tables(SourceRecipe(path=str(_write(tmp_path, **files))))["all"]
    rows = list(table.read())
    assert len(rows) == 6
    assert rows[0] == {"text": "text 0\nof news", "label": "news"}
    assert "one folder per class" in table.notes[0]


def test_classes_inside_train_and_test_are_splits(tmp_path: Path) -> None:
    files = {
        f"{split}___{label}___{n}__txt": "a text"
        for split in ("train", "test")
        for label in ("pos", "neg", "unsup")
        for n in range(3)
    }
    tables = find_tables(SourceRecipe(path=str(_write(tmp_path, **files))))
    assert set(tables) == {"train", "test"}
    assert {row["label"] for row in tables["train"].read()} == {"pos", "neg"}
    assert tables["train"].notes[0].endswith("not read: unsup")


def test_folders_with_the_same_files_are_a_column(tmp_path: Path) -> None:
    files = {
        f"{label}{end}___{n}__txt": f"{label}{end} {n}"
        for label in ("Fake", "Real")
        for end in ("", "_titles")
        for n in range(3)
    }
    rows = list(find_tables(SourceRecipe(path=str(_write(tmp_path, **files))))["all"].read())
    assert len(rows) == 6
    assert rows[0] == {"text": "Fake 0", "titles": "Fake_titles 0", "label": "Fake"}


def test_source_and_target_folders_are_not_classes(tmp_path: Path) -> None:
    files = {f"{side}___{n}__txt": "a text" for side in ("source-sentences", "target-sentences") for n in range(3)}
    with pytest.raises(DataError, match=r"like source and target.*cat source-sentences/\* > all\.source-sentences"):
        find_tables(SourceRecipe(path=str(_write(tmp_path, **files))))
    assert set(find_tables(SourceRecipe(path=str(tmp_path), format="classes"))) == {"all"}


def test_text_files_with_other_names_are_an_open_question(tmp_path: Path) -> None:
    _write(tmp_path, custom_harm__txt="one text\nand more\n", custom_concern__txt="one text\nand two\n")
    with pytest.raises(DataError, match=r"set data\.format=classes.*data\.files='\{source: custom_concern\.txt"):
        find_tables(SourceRecipe(path=str(tmp_path)))
    rows = list(find_tables(SourceRecipe(path=str(tmp_path), format="classes"))["all"].read())
    assert [row["label"] for row in rows] == ["concern", "concern", "harm", "harm"]


def test_short_files_are_recognised_together(tmp_path: Path) -> None:
    texts = ["天气很好", "我们去公园散步", "商务大床房很大", "公交指示不对"]
    for n, text in enumerate(texts * 2):
        path = tmp_path / ("体育" if n % 2 else "文学") / f"{n}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("gb18030"))
    table = find_tables(SourceRecipe(path=str(tmp_path)))["all"]
    assert {row["text"] for row in table.read()} == set(texts)
    assert table.notes[1].startswith("files that are not UTF-8 are read as gb18030 (")
    assert table.notes[1].endswith("; set data.encoding if that is wrong")


def test_texts_named_by_a_table_are_refused_with_what_would_work(tmp_path: Path) -> None:
    files = {f"texts___{n}_1__txt": "a text" for n in range(30)}
    table = "file_id,label\n" + "".join(f"{n}_1,hate\n" for n in range(30))
    with pytest.raises(DataError, match=r"annotations\.csv names the files of texts/ in its column 'file_id'"):
        find_tables(SourceRecipe(path=str(_write(tmp_path, annotations__csv=table, **files))))


def test_labels_are_what_differs() -> None:
    assert labels_of(["rt-polarity.pos", "rt-polarity.neg"]) == ["pos", "neg"]
    assert labels_of(["custom_harm.txt", "custom_concern.txt"]) == ["harm", "concern"]
    assert labels_of(["pos.txt", "post.txt"]) == ["pos", "post"]
