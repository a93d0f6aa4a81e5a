from __future__ import annotations

import pytest

from seqfit.generation.conditions import TokenTree
from seqfit.generation.lookup import find_draft


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([], []),
        ([9], []),
        ([2], [3, 8, 1]),
        ([1, 2], [3, 8, 1]),
        ([5, 1, 2], [4, 1, 2, 3]),
        ([8], [1]),
        ([1], [2, 3, 8, 1]),
    ],
)
def test_a_draft_follows_the_longest_end_of_the_text_that_is_in_the_source(
    text: list[int], expected: list[int]
) -> None:
    assert find_draft(text, [5, 1, 2, 4, 1, 2, 3, 8, 1], tokens=4) == expected


def test_a_tree_offers_only_tokens_that_can_be_completed_in_time() -> None:
    tree = TokenTree()
    for tokens in ([5, 6], [5, 7, 8], [9]):
        tree.add(tokens)
    assert tree.list_next([], [1], left=4) == [5, 9]
    assert tree.list_next([], [1], left=2) == [9]
    assert tree.list_next([5], [1], left=3) == [6, 7]
    assert tree.list_next([5], [1], left=2) == [6]
    assert tree.list_next([9], [1], left=5) == [1]
    assert tree.list_next([4], [1], left=5) == [1]
