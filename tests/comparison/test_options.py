from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.options import read_options, split_list
from seqfit.errors import RecipeError
from seqfit.units import parse_seconds


def test_commas_within_brackets_part_nothing() -> None:
    assert split_list("fp16, strategy.freeze=[embeddings,encoder] ,ddp2,") == [
        "fp16",
        "strategy.freeze=[embeddings,encoder]",
        "ddp2",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("20m", 1200), ("1h30m", 5400), ("90s", 90), ("45", 45), ("1.5 h", 5400)]
)
def test_a_budget_is_read_in_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
    assert read_options(None, {"budget": text}).budget_seconds == seconds


@pytest.mark.parametrize("text", ["soon", "20x", "m", "-5m", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write it as 20m"):
        parse_seconds(text)


def test_options_win_over_the_file_and_none_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "matrix.yaml"
    file.write_text("strategies: [baseline, {short: [task.max_source_tokens=8]}]\nseeds: [3, 4]\nrepeats: 2\n")
    asked = read_options(file, {"repeats": 5, "steps": None, "seeds": None})
    assert asked.strategies == ["baseline", {"short": ["task.max_source_tokens=8"]}]
    assert (asked.seeds, asked.repeats, asked.steps) == ([3, 4], 5, None)


def test_strategies_may_be_a_text_a_list_or_a_mapping() -> None:
    assert read_options(None, {"strategies": "baseline,fp16"}).strategies == ["baseline", "fp16"]
    assert read_options(None, {"strategies": {"mine": ["fp16"], "again": []}}).strategies == [
        {"mine": ["fp16"]},
        {"again": []},
    ]


def test_values_that_vary_are_spelt_as_overrides_are() -> None:
    asked = read_options(None, {"vary": {"train.learning_rate": [0.0001, "3e-4"], "train.clip_norm": [None, 1.0]}})
    assert asked.vary == {"train.learning_rate": ["0.0001", "3e-4"], "train.clip_norm": ["null", "1.0"]}


def test_cards_are_found_by_any_spelling() -> None:
    assert read_options(None, {"gpus": ["V100 16GB", "rtx 3090", "3090"]}).gpus == ["v100-16-sxm", "rtx3090"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"repeat": 3}, "repeat: unknown field. Did you mean 'repeats'?"),
    "a seed twice": ({"seeds": [1, 1]}, "[1, 1] names a seed twice"),
    "a seed in words": ({"seeds": ["one"]}, "seeds.0: 'one' is given"),
    "no repeats": ({"repeats": 0}, "repeats: 0 is given"),
    "a card that could be several": ({"gpus": ["v100"]}, "could be v100-16-sxm"),
    "a device that is none": ({"devices": ["gpu"]}, "'gpu' is none of auto, cpu, cuda"),
    "no time": ({"budget": "soon"}, "'soon' is not a time"),
    "nothing to vary": ({"vary": {"train.learning_rate": []}}, "vary.train.learning_rate"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_reported_with_its_field(case: str) -> None:
    options, said = WRONG[case]
    with pytest.raises(RecipeError) as reported:
        read_options(None, options)
    assert said in str(reported.value)


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(RecipeError, match="The comparison has 3 mistakes") as reported:
        read_options(None, {"repeats": 0, "seeds": [-1], "budget": "x"})
    assert len(str(reported.value).splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- baseline\n", "it has no fields"),
        ("seeds: [0]\nseeds: [1]\n", "'seeds' is given already in line 1"),
        ("seeds: [0\n", "can't be read"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(text)
    with pytest.raises(RecipeError, match=said):
        read_options(tmp_path / "matrix.yaml", {})


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        read_options(tmp_path / "nothing.yaml", {})
