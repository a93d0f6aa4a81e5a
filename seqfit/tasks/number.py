"""The final number of a worked solution: text comes in, a plain decimal goes out, or None.

    find_final_number("She makes 9 * 2 = $18.\\n#### 1,018") == "1018"
    find_final_number("so the answer is $-2.50.")            == "-2.50"

Numbers are read in English notation: a comma groups thousands, a point starts the decimals.
"""

from __future__ import annotations

import re

ANSWER_MARK = "####"

# A minus counts as a sign only where no operand stands before it: '16-3' ends in 3, '= -3' in -3.
_NUMBER = re.compile(r"(?P<sign>(?<![\w)%])[-−])?[$€£¥]?(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)")


def find_final_number(text: str) -> str | None:
    """The first number after the last '####', or else the last number of the text."""
    _, mark, tail = text.rpartition(ANSWER_MARK)
    marked = _NUMBER.search(tail) if mark else None
    if marked is not None:
        return _plain(marked)
    numbers = list(_NUMBER.finditer(text))
    return _plain(numbers[-1]) if numbers else None


def _plain(match: re.Match[str]) -> str:
    sign = "-" if match["sign"] else ""
    return sign + match["digits"].replace(",", "")
