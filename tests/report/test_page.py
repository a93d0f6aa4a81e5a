from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.report.page import choose_best_score, report
from seqfit.rundir import Run, files


def test_the_page_is_written_into_the_run(run_path: Path) -> None:
    assert report(run_path) == run_path / files.SUMMARY
    page = (run_path / files.SUMMARY).read_text("utf-8")
    for said in ("google/mt5-small", "squad_es", "train 5,267", "16.0 GiB", "torch 2.13.0", "finished", "2026-02-02"):
        assert said in page


def test_it_can_be_written_elsewhere(run_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    assert report(Run(run_path), out) == out
    assert out.is_file()
    assert not (run_path / files.SUMMARY).exists()


def test_scores_stand_beside_those_before_fine_tuning(run_path: Path) -> None:
    page = report(run_path).read_text("utf-8")
    assert choose_best_score(Run(run_path)) == "f1"
    assert "before fine-tuning 3.0" in page
    assert '<td class="number">67.9</td>' in page
    assert "validation, step 0</th>" in page
    assert "squad|normalisation:es" in page


def test_an_evaluation_before_fine_tuning_stands_beside_the_one_after(run_path: Path) -> None:
    before = {"split": "test", "step": 0, "metrics": {"em": 0.3, "f1": 4.4}, "predictions": []}
    (run_path / files.evaluation("test", before=True)).write_text(json.dumps(before), "utf-8")
    page = report(run_path).read_text("utf-8")
    assert "before fine-tuning 4.4" in page
    assert page.index("test, before</th>") < page.index("test, after</th>")
    assert page.count("Answers on test") == 1


def test_a_split_scored_afterwards_is_not_drawn_as_a_curve(run_path: Path) -> None:
    record = {
        "step": 400,
        "split": "test",
        "loss": 1.0,
        "scores": {"f1": 67.9},
        "rows": 61,
        "seconds": 1.0,
        "time": 1.0,
    }
    with open(run_path / files.EVALUATIONS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    page = report(run_path).read_text("utf-8")
    assert "test, step 400" not in page
    assert "F1, validation" in page


def test_a_model_from_a_folder_is_named_by_it(run_path: Path) -> None:
    recipe = load_recipe(run_path / files.RECIPE, ["model.path=models/mine", "model.weights=random"])
    (run_path / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    assert "<dd>mine, from random weights</dd>" in report(run_path).read_text("utf-8")


def test_nothing_a_model_wrote_becomes_markup(run_path: Path) -> None:
    page = report(run_path).read_text("utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#x27;prediction&#x27;)" in page
    assert "<b>bold</b>" not in page


def test_the_recipe_and_the_manifest_are_there_to_copy(run_path: Path) -> None:
    page = report(run_path).read_text("utf-8")
    assert "hub_config: v1.1.0" in page
    assert "&quot;fingerprint&quot;: &quot;5f0c&quot;" in page
    assert "no fast bf16" in page


def test_a_run_that_failed_at_once_has_a_page(run_path: Path) -> None:
    for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.STRATEGY, files.evaluation("test")):
        (run_path / name).unlink()
    manifest = json.loads((run_path / files.MANIFEST).read_text("utf-8"))
    (run_path / files.MANIFEST).write_text(json.dumps({**manifest, "status": "failed"}), "utf-8")
    page = report(run_path).read_text("utf-8")
    assert '<span class="badge bad">failed</span>' in page
    assert len(page) < 30_000  # without figures there is no need for plotly's script


def test_a_loss_that_is_not_a_number_leaves_a_gap(run_path: Path) -> None:
    with open(run_path / files.STEPS, "a", encoding="utf-8") as stream:
        last = json.loads((run_path / files.STEPS).read_text("utf-8").splitlines()[-1])
        stream.write(json.dumps({**last, "step": 402, "loss": float("nan"), "gradient_norm": None}) + "\n")
    page = report(run_path).read_text("utf-8")
    assert '<div class="value">nan</div>' in page
    assert "NaN" not in page.split("<main>")[1].split("</main>")[0]


def test_sources_scored_apart_have_columns_of_their_own(run_path: Path) -> None:
    evaluation = json.loads((run_path / files.evaluation("test")).read_text("utf-8"))
    evaluation |= {"by_source": {"wiki": {"em": 11.1}, "news": {"em": 22.2}}}
    (run_path / files.evaluation("test")).write_text(json.dumps(evaluation), "utf-8")
    page = report(run_path).read_text("utf-8")
    assert "test, wiki</th>" in page
    assert '<td class="number">22.2</td>' in page


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no manifest\.json"):
        report(tmp_path)


def test_a_browser_draws_every_figure(run_path: Path, open_page: Callable[[Path], str]) -> None:
    document = open_page(report(run_path))
    assert document.count('data-drawn="yes"') == 6
    assert document.count("main-svg") >= 6
    assert "&lt;script&gt;alert('prediction')" in document
