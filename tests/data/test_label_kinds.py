from __future__ import annotations

from typing import Any

import pytest

from seqfit.data.label_kinds import find_label_kind


def _kind(values: list[Any], task: str = "classify") -> tuple[str | None, dict[str, Any], bool]:
    kind = find_label_kind(task, "{label}", [{"label": value} for value in values * 6])
    return kind.task, dict(kind.more), kind.doubt is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["good", "bad", "good"], (None, {}, False)),
        (["1", "2", "5"], (None, {}, False)),
        ([1.0, 2.0, 5.0], (None, {}, False)),
        ([0.0, 2.4, 3.8], ("regression", {}, False)),
        (["0.66", "1", "0.25"], ("regression", {}, False)),
        ([str(n) for n in range(60)], (None, {}, True)),
        (["4,27", "27", "4", "3"], ("multilabel", {"label_separator": ","}, False)),
        (["sport|news", "sport", "news|world", "world"], ("multilabel", {"label_separator": "|"}, False)),
        (["Sci/Tech", "World", "Smith, John"], (None, {}, False)),
        ([["new", "pin"], ["how"], ["pin"]], ("multilabel", {}, False)),
        ([["one"], ["two"]], (None, {}, False)),
        ([["none", "none", "weak"], ["weak", "none"]], (None, {"annotations": "majority"}, False)),
    ],
)
def test_values_say_what_they_are(values: list[Any], expected: tuple[str | None, dict[str, Any], bool]) -> None:
    assert _kind(values) == expected


def test_scores_of_several_annotators_are_averaged() -> None:
    assert _kind([[1, 1, 2], [3, 3, 3]], "regression") == (None, {"annotations": "mean"}, False)


def test_other_tasks_have_no_labels() -> None:
    assert find_label_kind("qa", "{label}", [{"label": "0.5"}] * 9).task is None
