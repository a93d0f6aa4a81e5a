"""Somebody repeats a study of their own: it is killed, goes on where it was, and mistakes leave nothing behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.person import Person

MINE = """\
title: Does recomputing save memory?
question: What does gradient checkpointing save, and what does it cost?
quantities: {time: step_seconds, memory: memory, em: em}
baseline: plain
candidates:
  plain: {strategy: [baseline]}
  saving: {strategy: [recompute]}
published:
  source: my own notes
  figures:
    plain: {time: 10 s, memory: 4.0 GB}
    saving: {time: 13 s, memory: 2.0 GB}
quick:
  recipe: demo
  steps: 6
  warm_up: 1
  overrides: [train.batch_examples=4, model.dropout=0, eval.limit=4]
"""


@pytest.fixture
def person(tmp_path: Path, installed: Path) -> Person:
    return Person(tmp_path / "work", installed)


def test_a_study_of_ones_own_is_killed_and_goes_on(person: Person) -> None:
    (person.folder / "mine.yaml").write_text(MINE)
    with person.starts("seqfit study mine.yaml") as going:
        going.wait_for(r"1 of 2 trials (are done|finished)")
        going.interrupt(signal.SIGKILL)
        going.wait()
    outcomes = person.folder / "studies" / "mine" / "measured" / "outcomes.jsonl"
    first = outcomes.read_text().splitlines()[0]
    printed = person.types("seqfit study mine.yaml")
    assert outcomes.read_text().splitlines()[0] == first
    result = json.loads((person.folder / "studies" / "mine" / "study.json").read_text())
    assert result["answer"] in " ".join(printed.text.split())
    assert [row["candidate"] for row in result["rows"]] == ["plain", "saving"]
    assert all({"published", "measured"} <= set(row) for row in result["rows"])
    page = (person.folder / "studies" / "mine" / "report.html").read_text()
    assert "my own notes" in page


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text.replace("saving: {time", "savin: {time"), "'savin' is not a candidate"),
        (lambda text: text.replace("4.0 GB", "4.0"), "4.0 has no unit"),
        (lambda text: text.replace("steps: 6", "steps: 6\n  data: nowhere.csv"), "data set nowhere.csv is not there"),
        (lambda text: text.replace("[recompute]", "[recompte]"), "Did you mean 'recompute'"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_leave_nothing(
    person: Person, change: Callable[[str], str], expected: str
) -> None:
    (person.folder / "mine.yaml").write_text(change(MINE))
    printed = person.types("seqfit study mine.yaml", exit_code=2)
    assert expected in printed.text
    assert [path.name for path in person.folder.iterdir()] == ["mine.yaml"]
