from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.studies import list_studies, load_study
from seqfit.studies.predictions import check_prediction
from tests.studies.study_files import study_values, write_study


def test_every_study_of_the_library_is_right_and_its_rows_have_figures() -> None:
    studies = list_studies()
    assert {"classic-strategies", "t5-memory"} <= {study.name for study in studies}
    for study in studies:
        assert check_prediction(study) == []
        assert study.spec.baseline in study.figures or not study.figures
        assert study.spec.question.endswith("?")


def test_an_unknown_name_is_answered_with_a_close_one() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'classic-strategies'"):
        load_study("clasic-strategies")


def test_a_study_of_ones_own_is_a_file(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path))
    assert (study.name, study.is_library) == ("mine", False)
    assert study.figures["saving"]["memory"].value == 2.0


def _figures(**rows: Any) -> dict[str, Any]:
    return {"published": {"source": "a note", "figures": rows}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            _figures(savin={"time": "3 s"}),
            "'savin' is not a candidate; figures belong to one of them. Did you mean 'saving'",
        ),
        (_figures(plain={"memory": 27}), "published.figures.plain.memory: 27 has no unit"),
        (_figures(plain={"speed": "3 s"}), "'speed' is not in quantities"),
        ({"baseline": "simple"}, "baseline: 'simple' is not a candidate"),
        ({"shows": ["colour"]}, "'colour' is not in quantities"),
        ({"candidates": {"plain": {"script": {}}, "saving": {}}}, "there is no prediction"),
        ({"quik": {}}, "quik: unknown field. Did you mean 'quick'"),
        ({"title": None}, "title"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_study(write_study(tmp_path, **changes))
    assert expected in str(caught.value)


def test_all_mistakes_of_a_file_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="3 mistakes"):
        load_study(write_study(tmp_path, baseline="x", shows=["y"], **_figures(plain={"memory": 27})))


def test_settings_of_a_script_are_checked_before_anything_runs(tmp_path: Path) -> None:
    prediction = {
        "gpu": "rtx3090",
        "recipe": "demo",
        "lengths": {"mean": 100, "sigma": 0.5},
        "rows": 10,
        "epochs": 1,
        "script": {"precison": "bf16"},
    }
    candidates = study_values()["candidates"]
    candidates["plain"]["script"] = {"accumulation": "many"}
    found = check_prediction(load_study(write_study(tmp_path, prediction=prediction, candidates=candidates)))
    assert any("Did you mean 'precision'" in line for line in found)
    assert any("accumulation" in line and "many" in line for line in found)


@pytest.mark.parametrize("text", ["", "[1, 2]", "title: [", "title: a\ntitle: b"])
def test_a_file_that_is_no_study_is_an_error_and_not_a_traceback(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError):
        load_study(file)
