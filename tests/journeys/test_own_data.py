"""From a file to a prediction with what people bring: `seqfit data`, `seqfit train --data`, `seqfit predict`."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.person import Person

_FEW = "train.steps=3 train.batch_examples=8 eval.limit=4"
_TOWNS = ("Lima", "Quito", "Oslo", "Roma", "Praga", "Viena", "Bonn")


@pytest.fixture
def person(installed: Path, tmp_path: Path) -> Person:
    return Person(tmp_path / "work", installed)


@pytest.fixture
def goes(person: Person, belongings: dict[str, str]) -> Callable[[str, str, str, str], str]:
    """Looks at data, trains on it by the command that was printed, and asks for one row; the answer."""

    def go(data: str, task: str, question: str, overrides: str = "") -> str:
        model = shlex.quote(belongings["t5"])
        seen = person.types(f"seqfit data {data} --task {task} {overrides}").text
        assert f"seqfit train --data {data} --task {task}" in seen
        printed = person.types(
            f"seqfit train --data {data} --task {task} --model {model} {overrides} {_FEW} --out runs/own"
        ).text
        assert "guessed: " in printed
        return person.types(f"echo {shlex.quote(question)} | seqfit predict runs/own").text

    return go


def rows() -> list[tuple[str, str]]:
    """Sentences and what they are about, no two alike."""
    return [
        (f"The {_TOWNS[n % 7]} train number {n} was {'late' if n % 3 else 'early'} again.", "bad" if n % 3 else "good")
        for n in range(80)
    ]


def test_a_csv(person: Person, goes: Callable[..., str]) -> None:
    with (person.folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "review", "sentiment"), *((n, *row) for n, row in enumerate(rows()))])
    assert goes("reviews.csv", "classify", '{"review": "The Oslo train was late."}').strip()


def test_a_tsv_without_a_header(person: Person, goes: Callable[..., str]) -> None:
    (person.folder / "reviews.tsv").write_text("\n".join(f"{label}\t{text}" for text, label in rows()) + "\n")
    answer = goes("reviews.tsv", "classify", "The Oslo train was late.")  # one column: a line is its text
    assert answer.strip()
    recipe = (person.folder / "runs" / "own" / "recipe.yaml").read_text()
    assert rows()[0][0] not in recipe  # the first row is none of the columns' names


def test_an_excel_file(person: Person, goes: Callable[..., str]) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed; the extra test has it")
    book = openpyxl.Workbook()
    book.active.append(["review", "sentiment"])
    for row in rows():
        book.active.append(list(row))
    book.save(person.folder / "reviews.xlsx")
    assert goes("reviews.xlsx", "classify", '{"review": "The Oslo train was late."}').strip()


def test_a_folder_of_parallel_files(person: Person, goes: Callable[..., str]) -> None:
    folder = person.folder / "pairs"
    folder.mkdir()
    for split, size in {"train": 60, "dev": 10, "test": 10}.items():
        (folder / f"{split}.src").write_text("".join(f"where is house {n} of {split}\n" for n in range(size)))
        (folder / f"{split}.tgt").write_text("".join(f"house {n} of {split} is here\n" for n in range(size)))
    assert goes("pairs", "generate", "where is house 3").strip()


def test_a_data_frame(person: Person, belongings: dict[str, str]) -> None:
    script = f"""
import pandas as pd
import seqfit

frame = pd.DataFrame({json.dumps(rows())}, columns=["review", "sentiment"])
report = seqfit.describe_data(frame)
print(report)
assert report.task == "classify", report.task
run = seqfit.train(data=frame, task="classify", model={belongings["t5"]!r}, overrides={_FEW!r}.split())
print(seqfit.evaluate(run, data=frame.head(3))["rows"], "rows scored")
print(seqfit.predict(run, frame.head(2).to_dict("records")))
"""
    (person.folder / "mine.py").write_text(script)
    printed = person.types("python mine.py").text
    assert "guessed: " in printed
    assert "step 3/3" in printed
    assert "3 rows scored" in printed
    run = next((person.folder / "runs").glob("DataFrame-*"))
    person.types(f"seqfit evaluate runs/{run.name} --limit 2")  # another process finds the rows again
