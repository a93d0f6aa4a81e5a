from __future__ import annotations

from typing import Any

from seqfit.inspection.statistics import count_classes
from seqfit.recipe.schema import TaskRecipe


def counted(name: str, targets: dict[str, int], **fields: Any) -> list[tuple[str, int]]:
    task = TaskRecipe.model_validate({"name": name, "source": "{s}", "target": "{t}", **fields})
    return [(entry.label, entry.count) for entry in count_classes(task, targets)]


def test_labels_come_in_the_recipes_order_whether_they_occur_or_not() -> None:
    assert counted("classify", {"yes": 7, "no": 3}, labels=["maybe", "no", "yes"]) == [
        ("maybe", 0),
        ("no", 3),
        ("yes", 7),
    ]


def test_each_label_of_a_row_counts() -> None:
    assert counted("multilabel", {"joy": 2, "joy, fear": 1, "": 5}) == [("joy", 3), ("fear", 1)]


def test_numbers_are_counted_in_ranges() -> None:
    ranges = counted("regression", {"0.5": 1, "4": 2, "5": 1, "not a number": 9})
    assert [count for _, count in ranges] == [1, 0, 3]
    assert ranges[0][0] == "0.5–2"
    assert counted("regression", {"x": 1}) == []
