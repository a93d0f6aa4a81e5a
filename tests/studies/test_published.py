"""What the studies of the library must show, from results that were run (benchmarks/studies/results)."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from seqfit.studies import load_study
from seqfit.studies.audited import audit_published, describe_audit
from seqfit.studies.results import StudyResult

RESULTS = Path(__file__).parents[2] / "benchmarks" / "studies" / "results"


def read(name: str) -> StudyResult:
    values: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return TypeAdapter(StudyResult).validate_python(values)


def find_errors(result: StudyResult) -> dict[str, float]:
    published, predicted = (result.list_values(basis, "memory") for basis in ("published", "predicted"))
    return {name: predicted[name] / published[name] - 1 for name in published if name in predicted}


def test_memory_of_the_six_strategies_is_predicted_within_a_tenth() -> None:
    errors = find_errors(read("classic-strategies"))
    assert len(errors) == 6
    assert {name: error for name, error in errors.items() if abs(error) > 0.10} == {}


def test_predicted_times_are_in_the_published_order_where_those_differ() -> None:
    result = read("classic-strategies")
    published, predicted = (result.list_values(basis, "time") for basis in ("published", "predicted"))
    pairs = [sorted(pair, key=lambda name: published[name]) for pair in combinations(published, 2)]
    apart = [(fast, slow) for fast, slow in pairs if published[slow] > 1.05 * published[fast]]
    assert len(apart) == 12
    assert [pair for pair in apart if predicted[pair[0]] >= predicted[pair[1]]] == []


def test_measured_accuracies_have_an_interval_and_lossless_rows_the_baselines() -> None:
    result = read("classic-strategies")
    scores = {row.candidate: row.measured["accuracy"] for row in result.rows if "accuracy" in row.measured}
    assert len(scores) == 4
    assert all(score.low is not None and score.low < score.value < score.high for score in scores.values())
    lossless = [scores[name] for name in ("gradient accumulation", "gradient checkpointing")]
    assert lossless == [scores[result.baseline]] * 2


def test_the_audit_names_the_inversion_from_the_published_arguments() -> None:
    audit = audit_published(load_study("classic-strategies"))
    assert audit is not None
    inverted = [finding for finding in audit.findings if finding.is_inverted]
    assert ["accumulation" in finding.label for finding in inverted] == [True]
    assert "inverted" in " ".join(describe_audit(audit).text)


def test_memory_of_t5_is_predicted_within_15_percent_but_for_the_row_that_took_15_times_as_long() -> None:
    result = read("t5-memory")
    errors = find_errors(result)
    assert len(errors) == 11
    assert [name for name, error in errors.items() if abs(error) > 0.15] == ["gradient_checkpointing"]
    nearness = next(section for section in result.sections if section.title.startswith("How near"))
    assert "over 15 times as long" in " ".join(nearness.text)


@pytest.mark.parametrize("name", ["classic-strategies", "t5-memory"])
def test_every_figure_stands_under_its_own_basis(name: str) -> None:
    study, result = load_study(name), read(name)
    assert {row.candidate: row.published for row in result.rows if row.published} == study.figures
    assert result.answer.endswith(".")
    assert set(result.settings) == {"predicted", "measured"}
