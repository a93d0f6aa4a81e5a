"""The comparison of evaluations: that both sides write the same texts, and that the table says what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.evaluation import measure
from benchmarks.evaluation.sides import SIDES, EvaluatedRows, Run, build_ours, build_trainer, strip
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe

ROWS = 21


@pytest.fixture
def evaluated(make_split: Any) -> EvaluatedRows:
    generator = np.random.default_rng(0)
    sources = [generator.integers(3, 100, 1 + row % 9).tolist() for row in range(ROWS)]
    targets = [[5] * (row % 6) + [1] for row in range(ROWS)]
    return EvaluatedRows(make_split(sources, targets), np.arange(ROWS)[::-1].copy(), 8)


@pytest.mark.parametrize("side", ["trainer-4", "grouped-4"])
def test_both_sides_write_the_same_ids_of_the_targets_lengths(
    tiny_model: Callable[[str], Path], evaluated: EvaluatedRows, side: str
) -> None:
    recipe = ModelRecipe(path=str(tiny_model("mt5")))
    tokenizer = load_tokenizer(recipe)
    ours = build_ours(load_model(recipe).eval(), tokenizer)(evaluated)
    theirs = build_trainer(side, load_model(recipe).eval(), tokenizer)(evaluated)
    assert ours == theirs
    assert [len(ids) for ids in ours] == [1 + row % 6 for row in evaluated.rows]
    assert all(ids[-1] == 1 and 1 not in ids[:-1] for ids in ours)
    assert len({tuple(ids) for ids in ours}) > ROWS // 2


def test_ids_are_stripped_of_the_start_and_of_padding() -> None:
    assert strip([0, 7, 0, 1, 0, 0]) == [7, 0, 1]
    assert strip([0, 7, 8]) == [7, 8]


def test_the_table_has_the_faster_batch_size_and_the_medians(tmp_path: Path) -> None:
    seconds = {"ours": [1.0, 2.0, 1.0], "trainer-16": [3.0, 3.0, 9.0], "trainer-64": [4.0] * 3, "grouped-16": [2.0] * 3}
    machine = {"processor": "P", "cores": 2, "threads": 2, "host_bytes": 2**30}
    machine |= {"versions": {"torch": "2", "transformers": "5"}}
    machine["sameness"] = {side: {"same": 10, "largest_gap": None} for side in SIDES[1:]}
    machine["sameness"]["grouped-16"] = {"same": 9, "largest_gap": 2e-6}
    results = [
        {"side": side, "repeat": repeat, "rows": 10, "tokens": 55, "seconds": taken[repeat]}
        for repeat in range(3)
        for side, taken in seconds.items()
    ]
    (tmp_path / "dialogsum.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (machine, *results)))
    plain, grouped = measure.format_table(tmp_path).splitlines()[2:4]
    assert plain == (
        "| DialogSum | 10 | 5.5 | 10.00 (5.00-10.00) | as is, 16 per batch | 3.33 (1.11-3.33) | 3.00 | 2.5 | reached "
        "| 10 of 10 |"
    )
    assert "| 2.00 |  |  | 9 of 10, the others part at logits 2e-06 apart |" in grouped


def test_rows_that_differ_are_counted_and_their_gap_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def gap(_run: Run, row: int, _ours: list[int], _theirs: list[int]) -> float:
        asked.append(row)
        return 1e-6 * row

    monkeypatch.setattr(measure, "measure_gap", gap)
    same = [[5, 1], [6, 1], [7, 1]]
    texts = {"ours": same, "trainer-16": same, "trainer-64": [[5, 1], [8, 1], [9, 1]], "grouped-16": same}
    found = measure.compare(Run("ours", "dialogsum", 3, "unused"), texts)
    assert found["trainer-16"] == {"same": 3, "largest_gap": None}
    assert found["trainer-64"] == {"same": 1, "largest_gap": pytest.approx(2e-6)}
    assert asked == [1, 2]


def test_the_gap_is_that_of_the_two_logits_where_texts_first_differ(
    tiny_model: Callable[[str], Path], evaluated: EvaluatedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.evaluation import sides

    recipe = ModelRecipe(path=str(tiny_model("t5")))
    monkeypatch.setattr(sides, "load_rows", lambda *_: evaluated)
    monkeypatch.setattr(sides.Run, "model", recipe)
    run = Run("ours", "dialogsum", ROWS, "unused")
    source, _ = evaluated.split.token_ids(int(evaluated.rows[2]))
    with torch.inference_mode():
        logits = (
            load_model(recipe)
            .eval()(input_ids=torch.tensor(np.array([source])), decoder_input_ids=torch.tensor([[0, 9]]))
            .logits[0, -1]
        )
    expected = abs(float(logits[8] - logits[7]))
    assert sides.measure_gap(run, 2, [9, 8, 1], [9, 7, 1]) == pytest.approx(expected, rel=1e-4)
