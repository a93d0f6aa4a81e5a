from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.records import Matrix, Outcome, Trial
from seqfit.errors import DataError, RecipeError, RunError
from seqfit.studies import predictions, prepare_study, read_study_result, run_study
from seqfit.studies.predictions import PredictedCandidate
from tests.comparison.comparisons import pretend
from tests.studies.study_files import study_values, write_study

PREDICTION: dict[str, Any] = {
    "gpu": "rtx3090",
    "gpus": 2,
    "recipe": "demo",
    "lengths": {"mean": 100, "sigma": 0.5, "target": 8},
    "rows": 10,
    "epochs": 1,
    "assumptions": ["texts are short"],
}


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trials that ran, without training."""
    ran: list[str] = []

    def run(matrix: Matrix, trial: Trial, folder: Path, *rest: Any) -> Outcome:
        ran.append(trial.candidate)
        return pretend(matrix, trial, folder, *rest)

    monkeypatch.setattr("seqfit.comparison.repeats.run_trial", run)
    monkeypatch.setattr("seqfit.comparison.compare.predict_candidates", lambda *_, **__: iter(()))
    monkeypatch.setattr("seqfit.comparison.compare.tokenize_ahead", lambda *_: None)
    return ran


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The candidates that were predicted, without a trace."""
    made: list[str] = []

    def predict(_: object, name: str, *__: object) -> PredictedCandidate:
        made.append(name)
        size = 2**30 * (4 if name == "plain" else 2)
        return PredictedCandidate(name, size, size, size, (size // 2,) * 2, 3.0, 0.1, True, "ddp x 2", "", {})

    monkeypatch.setattr(predictions, "predict_candidate", predict)
    return made


def _write(folder: Path, **changes: Any) -> Path:
    candidates = study_values()["candidates"]
    for candidate in candidates.values():
        candidate["script"] = {"per_device_examples": 1}
    return write_study(folder, candidates=candidates, prediction=PREDICTION, **changes)


def test_published_predicted_and_measured_figures_stand_in_columns_of_their_own(
    tmp_path: Path, trials: list[str], predicted: list[str]
) -> None:
    out = tmp_path / "out"
    result = run_study(prepare_study(_write(tmp_path), out=out), lambda _: None)
    assert sorted(trials) == predicted == ["plain", "saving"]
    row = result.find_row("saving")
    assert row.published["memory"].format() == "2 GB"
    assert row.predicted["memory"].format() == "2 GB"
    assert row.measured["time"].value == pytest.approx(1.0)
    assert "em" not in row.predicted
    written = json.loads((out / "study.json").read_text())
    assert set(written["rows"][1]) == {"candidate", "about", "published", "predicted", "measured", "notes"}
    assert read_study_result(out) == result
    page = (out / "report.html").read_text()
    assert all(word in page for word in ("published", "predicted", "measured", result.answer.split(";")[0]))


def test_a_study_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, trials: list[str], predicted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = _write(tmp_path), tmp_path / "out"

    def stop(matrix: Matrix, trial: Trial, folder: Path, *rest: Any) -> Outcome:
        if trial.candidate == "saving":
            raise KeyboardInterrupt
        trials.append(trial.candidate)
        return pretend(matrix, trial, folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("seqfit.comparison.repeats.run_trial", stop)
        with pytest.raises(KeyboardInterrupt):
            run_study(prepare_study(file, out=out), lambda _: None)
    with (out / "predictions.jsonl").open("a") as stream:
        stream.write('{"candidate": "plai')  # a kill may truncate the last line
    result = run_study(prepare_study(file, out=out), lambda _: None)
    assert trials == ["plain", "saving"]
    assert predicted == ["plain", "saving"]
    assert [row.candidate for row in result.rows] == ["plain", "saving"]
    again = run_study(prepare_study(file, out=out), lambda _: None)
    assert again == result
    assert trials == ["plain", "saving"]


def test_a_folder_has_one_study_in_one_mode(tmp_path: Path, trials: list[str]) -> None:
    file, out = write_study(tmp_path), tmp_path / "out"
    run_study(prepare_study(file, out=out), lambda _: None)
    write_study(tmp_path, title="Another title")
    with pytest.raises(RunError, match="another study, mode or data"):
        prepare_study(file, out=out)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").touch()
    with pytest.raises(RunError, match="is not the folder of a study"):
        prepare_study(file, out=other)


def test_mistakes_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    unknown = study_values()["candidates"] | {"third": {"strategy": ["fp17"]}}
    with pytest.raises(RecipeError, match="fp17"):
        prepare_study(write_study(tmp_path, candidates=unknown), out=out)
    missing = {"recipe": "demo", "data": "nowhere/rows.csv"}
    monkeypatch.delenv("SEQFIT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"data set nowhere/rows\.csv is not there"):
        prepare_study(write_study(tmp_path, quick=missing), out=out)
    with pytest.raises(RecipeError, match="has no full run"):
        prepare_study(write_study(tmp_path), "full", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


def test_what_runs_on_other_data_says_so_on_top(
    tmp_path: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEQFIT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    quick = {
        "recipe": "demo",
        "data": "ag_news/test.csv",
        "otherwise": {"recipe": "demo", "about": "what ships", "steps": 6},
    }
    result = run_study(prepare_study(write_study(tmp_path, quick=quick), out=tmp_path / "out"), lambda _: None)
    assert "ag_news/test.csv is not there: what ships" in result.on_top[0]


def test_data_that_was_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_DATA", str(tmp_path))
    quick = {"recipe": "demo", "data": "rows.csv", "otherwise": {"recipe": "demo"}}
    with pytest.raises(DataError, match="SEQFIT_DATA"):
        prepare_study(write_study(tmp_path, quick=quick), out=tmp_path / "out")


def test_a_study_that_measures_nothing_has_its_published_figures(tmp_path: Path) -> None:
    result = run_study(prepare_study(write_study(tmp_path, quick=None), out=tmp_path / "out"), lambda _: None)
    assert result.answer.startswith("Least time: published plain (10 s); least memory: published saving (2 GB, 50%")
