from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.errors import DataError, ModelError, RecipeError, RunError

Row = dict[str, Any]

# What is evaluated may be trained without them.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


def write_rows(path: Path, rows: int, seed: int) -> None:
    draw = random.Random(seed)
    lines = []
    for _ in range(rows):
        words = [f"w{draw.randrange(3, 12)}" for _ in range(draw.randrange(2, 9))]
        lines.append(json.dumps({"first": words[0], "rest": " ".join(words[1:]), "answer": words[1]}))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]) -> seqfit.Run:
    """Two sources, two columns in the template."""
    folder = tmp_path_factory.mktemp("two-sources")
    for source, seed in (("easy", 1), ("hard", 2)):
        (folder / source).mkdir()
        for split, rows in (("train", 24), ("validation", 6), ("test", 5)):
            write_rows(folder / source / f"{split}.jsonl", rows, seed)
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{first} {rest}", "target": "{answer}", "max_source_tokens": 6},
        "data": [{"path": str(folder / "easy")}, {"path": str(folder / "hard"), "weight": 2.0}],
        "train": {"steps": 8, "batch_examples": 8, "learning_rate": 1e-2},
    }
    return seqfit.train(recipe, out=folder / "run")


def test_each_source_is_scored_by_itself_too(run: seqfit.Run) -> None:
    report = seqfit.evaluate(run)
    assert report["rows"] == 10
    assert set(report["by_source"]) == {"easy", "hard"}
    mean = sum(scores["em"] for scores in report["by_source"].values()) / 2
    assert report["metrics"]["em"] == pytest.approx(mean)
    assert [prediction["data"] for prediction in report["predictions"]] == ["easy"] * 5 + ["hard"] * 5


def test_one_json_file_has_checkpoint_metrics_and_predictions(run: seqfit.Run) -> None:
    report = seqfit.evaluate(run, "validation", limit=4)
    written = json.loads((run.path / "evaluation-validation.json").read_text())
    assert written == report
    assert written["checkpoint"] == str(run.checkpoint)
    assert {"em", "f1", "loss"} <= set(written["metrics"])
    assert len(written["predictions"]) == 4
    assert run.evaluations()[-1]["split"] == "validation"


def test_scores_have_confidence_intervals_in_file_and_records(run: seqfit.Run) -> None:
    report = seqfit.evaluate(run)
    for name in ("em", "f1"):
        low, high = report["intervals"][name]
        assert low <= report["metrics"][name] <= high
    assert set(report["intervals_by_source"]) == {"easy", "hard"}
    assert run.evaluations()[-1]["intervals"] == report["intervals"]
    during = next(record for record in run.evaluations() if record["split"] == "validation")
    assert set(during["intervals"]) == set(during["scores"])
    own = report["predictions"][0]["scores"]
    assert own["em"] in (0.0, 100.0)
    assert all(0 < row["confidence"] <= 1 for row in report["predictions"])
    assert sum(one["rows"] for one in report["calibration"]["bins"]) == report["rows"]


def test_a_classifier_has_classes_a_confusion_matrix_and_calibration(
    tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    lines = [f"{'good' if n % 3 else 'bad'},w{3 + n % 9} w{4 + n % 5}" for n in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,text", *lines]))
    recipe = {
        "model": {"path": str(tiny_model("bert")), "kind": "classifier"},
        "task": {"name": "classify", "source": "{text}", "target": "{label}", "labels": ["bad", "good"]},
        "data": {"path": str(tmp_path / "rows.csv")},
        "train": {"steps": 2, "batch_examples": 8},
    }
    report = seqfit.evaluate(seqfit.train(recipe, out=tmp_path / "run", progress=False))
    assert [one["label"] for one in report["classes"]] == ["bad", "good"]
    assert sum(map(sum, report["confusion"])) == report["rows"]
    assert all(row["confidence"] >= 0.5 for row in report["predictions"])
    assert 0 <= report["calibration"]["ece"] <= 100


def test_a_run_paired_with_itself_does_not_differ_and_is_evaluated_once(run: seqfit.Run) -> None:
    (run.path / "evaluation-validation.json").unlink(missing_ok=True)
    found = seqfit.evaluate_pair(run, run.path, "validation")
    assert (found.rows, found.left_out, found.better_rows) == (12, 0, 0)
    written = (run.path / "evaluation-validation.json").stat().st_mtime_ns
    assert seqfit.evaluate_pair(run, run, "validation") == found
    assert (run.path / "evaluation-validation.json").stat().st_mtime_ns == written


def test_before_scores_the_model_that_training_started_from(run: seqfit.Run) -> None:
    before, after = seqfit.evaluate(run, before=True), seqfit.evaluate(run)
    assert before["step"] == 0
    assert before["checkpoint"] == run.recipe.model.path
    assert before["metrics"]["loss"] > after["metrics"]["loss"]
    assert [p["id"] for p in before["predictions"]] == [p["id"] for p in after["predictions"]]
    assert run.evaluation("test", before=True) == before


def test_answers_do_not_depend_on_the_batch(run: seqfit.Run) -> None:
    rows: list[Row] = [{"first": f"w{n}", "rest": " ".join(["w4"] * (n % 5 + 1))} for n in range(3, 12)]
    together = seqfit.predict(run, rows)
    assert together == [seqfit.predict(run, [row])[0] for row in rows]


def test_texts_separated_by_tabs_are_columns(run: seqfit.Run) -> None:
    assert seqfit.predict(run, ["w3\tw4 w5"]) == seqfit.predict(run, [{"first": "w3", "rest": "w4 w5"}])


def test_one_text_for_two_columns_is_an_error_that_names_them(run: seqfit.Run) -> None:
    with pytest.raises(DataError, match="2 columns: first, rest"):
        seqfit.predict(run, ["w3"])


def test_a_copied_checkpoint_folder_still_knows_its_templates(run: seqfit.Run, tmp_path: Path) -> None:
    shutil.copytree(run.checkpoint, tmp_path / "copy")
    row = {"first": "w3", "rest": "w4 w5"}
    assert seqfit.predict(tmp_path / "copy", [row]) == seqfit.predict(run, [row])


def test_a_folder_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"seqfit\.json"):
        seqfit.predict(tmp_path, ["a"])
    with pytest.raises(ModelError, match="does not exist"):
        seqfit.predict(tmp_path / "none", ["a"])
    with pytest.raises(RunError, match=r"manifest\.json"):
        seqfit.evaluate(tmp_path)


def test_an_unknown_score_to_choose_by_is_refused(run: seqfit.Run, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"Did you mean 'f1_answerable'"):
        seqfit.train(
            run.recipe.model_copy(update={"eval": run.recipe.eval.model_copy(update={"best": "f1_answerabel"})})
        )


def test_a_split_that_the_data_lacks_is_an_error_in_three_parts(
    tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    write_rows(tmp_path / "rows.jsonl", 20, 1)
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{first} {rest}", "target": "{answer}"},
        "data": {"path": str(tmp_path / "rows.jsonl"), "holdout": {}},
        "train": {"steps": 1},
    }
    run = seqfit.train(recipe, out=tmp_path / "run")
    with pytest.raises(DataError, match="no test rows"):
        seqfit.evaluate(run)


def test_data_that_has_moved_is_named_by_an_override(run: seqfit.Run, tmp_path: Path) -> None:
    shutil.copytree(Path(str(run.recipe.sources[0].path)), tmp_path / "moved")
    moved = seqfit.evaluate(run, "test", [f"data.0.path={tmp_path / 'moved'}", "data.0.label=easy"], limit=3)
    assert moved["rows"] == 3


def test_no_rows_give_no_predictions(run: seqfit.Run) -> None:
    assert seqfit.predict(run, []) == []
