from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.tasks.number import find_final_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9 * 2 = $18.\n#### 18", "18"),
        ("#### 1,234,567", "1234567"),
        ("#### $1,080.50", "1080.50"),
        ("#### -3", "-3"),
        ("#### $-2", "-2"),
        ("#### -$2", "-2"),
        ("#### −7", "-7"),
        ("#### 18 eggs of 20", "18"),
        ("#### 5 and then #### 6", "6"),
        ("the answer is 42.", "42"),
        ("half of it is .5", ".5"),
        ("16-3", "3"),
        ("(4+4)-3", "3"),
        ("50%-20", "20"),
        ("x = -3", "-3"),
        ("it is 7 ####", "7"),
        ("no idea", None),
        ("####", None),
        ("", None),
    ],
)
def test_the_final_number_is_found(text: str, number: str | None) -> None:
    assert find_final_number(text) == number


def test_every_gsm8k_solution_has_the_number_that_stands_after_its_mark(shared_data: Path) -> None:
    lines = (shared_data / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    assert len(answers) == 1319
    for answer in answers:
        assert find_final_number(answer) == answer.split("####")[1].strip().replace(",", "").replace("$", "")
