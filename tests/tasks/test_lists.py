from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from seqfit.tasks.template import parse_list

ITEMS = ["joy", "it's", 'a " " b', "x, y", "[z]", "", "é\n"]


@pytest.mark.parametrize("write", [json.dumps, repr, str])
def test_a_list_that_json_or_python_wrote_is_read_back(write: Any) -> None:
    assert parse_list(write(ITEMS)) == ITEMS


@pytest.mark.parametrize("items", [["joy", "anger"], [str(number) * 9 for number in range(20)]])
def test_numpys_form_without_commas_is_not_one_long_word(items: list[str]) -> None:
    assert parse_list(str(np.array(items))) == items


def test_numbers_gaps_and_truths_become_text() -> None:
    assert parse_list("[1, -2.5, None, True, nan]") == ["1", "-2.5", "", "true", ""]
    assert parse_list("[true, null, 3]") == ["true", "", "3"]


@pytest.mark.parametrize(
    "text", ["joy", "[joy]", "[[1], [2]]", "['a'] and ['b']", "['a", "[f'x']", "[b'x']", "[1 + 2]"]
)
def test_what_is_no_flat_list_is_none(text: str) -> None:
    assert parse_list(text) is None
