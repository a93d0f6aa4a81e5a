"""Functions named FILE.py:FUNCTION: where they are looked for, and what is said of those that don't work."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.metrics import check_own_metrics, higher_is_better, score
from seqfit.metrics.resampling import find_intervals
from seqfit.own_functions import anchor_function, list_functions, load_function, remember_function
from seqfit.recipe import load_recipe


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return f"{path}:{path.stem}"


def metric(tmp_path: Path, body: str, name: str = "same_length", parameters: str = "prediction, references") -> str:
    return write(tmp_path / f"{name}.py", f"def {name}({parameters}):\n    {body}\n")


def test_a_function_of_a_row_is_averaged_and_has_an_interval(tmp_path: Path) -> None:
    spec = metric(tmp_path, "return float(len(prediction) == len(references[0]))")
    scores = score(["squad", spec], [["ab"], ["abc"], ["b"], ["x"]], ["ab", "a", "b", "y"])
    assert scores.values["same_length"] == 0.75
    assert scores.values["em"] == 50.0
    interval = find_intervals(scores.resamplers, 4, scores.values)["same_length"]
    assert interval.low <= 0.75 <= interval.high
    assert "same_length.py|sha256:" in scores.signatures["same_length"]
    assert higher_is_better("same_length")


def test_a_function_of_all_rows_returns_one_number_or_one_for_each(tmp_path: Path) -> None:
    one = metric(tmp_path, "return sum(map(len, predictions))", "total", "predictions, references")
    each = metric(
        tmp_path,
        "import numpy\n    return numpy.array([len(p) for p in predictions])",
        "each",
        "predictions, references",
    )
    scores = score([one, each], [["a"], ["b"]], ["xx", "yyyy"])
    assert scores.values == {"total": 6.0, "each": 3.0}
    assert set(find_intervals(scores.resamplers, 2, scores.values)) == {"each"}


@pytest.mark.parametrize(
    ("body", "parameters", "said"),
    [
        ("return 1 / len(prediction)", "prediction, references", "raised ZeroDivisionError"),
        ("return 'good'", "prediction, references", "returned 'good'"),
        ("return float('nan')", "prediction, references", "returned nan"),
        ("return None", "predictions, references", "returned None"),
        ("return [1.0]", "predictions, references", "1 values for 3 rows"),
        ("return 1", "a, b", "parameters are (a, b)"),
    ],
)
def test_a_metric_that_does_not_work_is_found_on_three_rows(
    tmp_path: Path, body: str, parameters: str, said: str
) -> None:
    spec = metric(tmp_path, body, parameters=parameters)
    with pytest.raises(RecipeError) as error:
        check_own_metrics(["squad", spec], [["a"], ["b"], ["c"]])
    assert said in str(error.value)
    assert error.value.rule.startswith("A metric")
    assert error.value.change


def test_a_metric_that_fails_later_is_absent_with_the_reason(tmp_path: Path) -> None:
    spec = metric(tmp_path, "return 1 / (3 - len(prediction))")
    scores = score(["squad", spec], [["a"]] * 4, ["a", "b", "ccc", "d"])
    assert "em" in scores.values
    assert "raised ZeroDivisionError" in scores.absent["same_length"]
    assert "'ccc'" in scores.absent["same_length"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("def other(prediction, references): pass", "mine", "has no function 'mine'"),
        ("import no_such_module_of_mine", "mine", "ModuleNotFoundError"),
        ("def broken(:", "mine", "SyntaxError"),
        ("import sys; sys.exit()", "mine", "SystemExit"),
        ("mine = 3", "mine", "has no function 'mine'"),
    ],
)
def test_a_file_that_does_not_work_is_explained(tmp_path: Path, text: str, name: str, said: str) -> None:
    (tmp_path / "f.py").write_text(text)
    with pytest.raises(RecipeError, match=said):
        load_function(f"{tmp_path / 'f.py'}:{name}", "eval.metrics")


def test_a_missing_file_says_where_it_was_looked_for() -> None:
    with pytest.raises(RecipeError, match="there is no file nowhere"):
        load_function("nowhere.py:f", "data.map")


def test_a_name_of_a_score_is_taken(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Rename the function"):
        score([metric(tmp_path, "return 1", "bleu")], [["a"]], ["a"])


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_metric.py").write_text("WORTH = 7.0")
    spec = metric(tmp_path, "import neighbour_of_metric as n; return n.WORTH", "neighbourly")
    assert score([spec], [["a"]], ["b"]).values == {"neighbourly": 7.0}


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    spec = metric(tmp_path, "return 1")
    assert score([spec], [["a"]], ["b"]).values == {"same_length": 1.0}
    metric(tmp_path, "return 2")
    assert score([spec], [["a"]], ["b"]).values == {"same_length": 2.0}


def test_paths_are_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    metric(folder, "return 1")
    (folder / "mine.yaml").write_text(
        "model: {path: m}\ntask: {name: qa, source: '{q}', target: '{a}'}\n"
        "data: {path: rows.csv, map: same_length.py:same_length}\n"
        "eval: {metrics: [squad, same_length.py:same_length], best: same_length}\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("recipes/mine.yaml")
    expected = f"{folder / 'same_length.py'}:same_length"
    assert recipe.eval.metrics == ["squad", expected]
    assert recipe.sources[0].map == expected
    assert recipe.functions == [("eval.metrics", "squad"), ("eval.metrics", expected), ("data.map", expected)]
    assert [one["field"] for one in list_functions(recipe.functions)] == ["eval.metrics", "data.map"]
    assert anchor_function("squad", folder) == "squad"


def test_a_function_of_this_program_has_a_name_and_a_hash() -> None:
    def shorter(prediction: str, references: list[str]) -> bool:
        return len(prediction) < len(references[0])

    spec = remember_function(shorter)
    assert spec == "memory:shorter"
    assert score([spec], [["ab"]], ["a"]).values == {"shorter": 1.0}
    assert len(list_functions([("eval.metrics", spec)])[0]["sha256"]) == 64
    with pytest.raises(RecipeError, match="with a name"):
        remember_function(lambda prediction, references: 1.0)


def test_a_function_of_another_program_is_gone() -> None:
    with pytest.raises(RecipeError, match="in that program's memory only"):
        load_function("memory:gone", "eval.metrics")
