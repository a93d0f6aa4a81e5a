from __future__ import annotations

from typing import Any

import pytest

from seqfit.inspection.label_readings import find_choice_base, find_label_kind, find_list_kind


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


@pytest.mark.parametrize(
    ("entries", "base", "doubt"),
    [
        (["0", "2", "1"], 0, False),
        (["1", "3", "2"], 1, False),
        (["1", "2"], 0, True),
        (["A", "(b)", "C."], "a", False),
        (["dog", "cow", "cat"], "text", False),
        ([2.0, 0.0], 0, False),
    ],
)
def test_the_right_choice_is_named_by_number_letter_or_text(entries: list[Any], base: Any, doubt: bool) -> None:
    rows = [{"answer": entry, "options": ["dog", "cat", "cow"]} for entry in entries * 4]
    kind = find_choice_base("{answer}", "{options}", rows)
    assert (dict(kind.more), kind.doubt is not None) == ({"choice_base": base}, doubt)


def test_lists_as_targets_are_alternatives_or_parts() -> None:
    assert find_list_kind("{t}", [{"t": ["a b", "c d"]}] * 5).doubt is not None
    assert find_list_kind("{t}", [{"t": ["a b"]}] * 5).doubt is None
    assert find_list_kind("{t}", [{"t": "a b"}] * 5).doubt is None
