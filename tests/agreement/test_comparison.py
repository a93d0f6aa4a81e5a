"""A comparison in real processes: lossless candidates have the baseline's losses, step by step, within 1e-4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.comparison.compare import compare
from seqfit.comparison.records import TRIAL_RUNS, CandidateResult, Comparison
from seqfit.rundir.reader import Run

TOLERANCE = 1e-4
STEPS = 5


@pytest.fixture(scope="module")
def comparison(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A tiny BERT without dropout on 64 rows of unequal length, planned for nothing."""
    folder = tmp_path_factory.mktemp("comparison")
    rows = [
        {"text": " ".join(f"w{3 + (number * place) % 90}" for place in range(3 + number % 17)), "label": name}
        for number, name in enumerate(["yes", "no", "maybe", "no"] * 20)
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    recipe = {
        "model": {"path": str(tiny_model("bert")), "kind": "classifier", "dropout": 0.0},
        "task": {"name": "classify", "source": "{text}", "target": "{label}", "labels": ["yes", "no", "maybe"]},
        "data": {"path": str(folder / "rows.jsonl")},
        "train": {"batch_examples": 16, "learning_rate": 1e-2},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQFIT_CACHE", str(folder / "cache"))
        patch.setattr("seqfit.comparison.compare.predict_candidates", lambda *_, **__: [])
        options = {"strategies": "baseline,fp16,accumulation", "repeats": 1, "steps": STEPS, "warm_up": 1}
        return compare(recipe, out=folder / "c", devices=["cpu"], **options)


def run_of(comparison: Comparison, name: str) -> Run:
    return Run(Path(comparison.folder) / TRIAL_RUNS / f"{name}-seed0-repeat0")


def result_of(comparison: Comparison, name: str) -> CandidateResult:
    return next(one for one in comparison.results if one.candidate.name == name)


@pytest.mark.slow
def test_a_lossless_candidate_has_the_losses_of_the_baseline(comparison: Comparison) -> None:
    """The others have them in one process: tests/training/test_strategies.py."""
    ours, theirs = (
        {record["step"]: record["loss"] for record in run_of(comparison, each).steps()}
        for each in ("accumulation", "baseline")
    )
    assert list(ours) == list(range(1, STEPS + 1))
    assert ours == pytest.approx(theirs, abs=TOLERANCE)
    assert max(theirs.values()) - min(theirs.values()) > 10 * TOLERANCE  # they learn: equal by rest would be nothing


@pytest.mark.slow
def test_the_baseline_runs_the_whole_batch_at_once_and_accumulation_a_quarter(comparison: Comparison) -> None:
    pieces = {
        name: {record["micro_batches"] for record in run_of(comparison, name).steps() if record["examples"] == 16}
        for name in ("baseline", "accumulation")
    }
    assert pieces == {"baseline": {1}, "accumulation": {4}}


@pytest.mark.slow
def test_every_trial_is_scored_once_after_the_last_step(comparison: Comparison) -> None:
    for name in ("baseline", "accumulation"):
        assert [record["step"] for record in run_of(comparison, name).evaluations()] == [STEPS]


@pytest.mark.slow
def test_the_checklist_holds_and_fp16_is_impossible_on_a_cpu(comparison: Comparison) -> None:
    assert [check for check in comparison.checks if not check.same] == []
    assert result_of(comparison, "fp16").state == "not_available"
    assert {result_of(comparison, name).state for name in ("baseline", "accumulation")} == {"finished"}
