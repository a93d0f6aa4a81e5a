"""Numbers in texts: the final number of a worked solution, and scores as text.

    find_final_number("She makes 9 * 2 = $18.\\n#### 1,018") == "1018"
    find_final_number("so the answer is $-2.50.")            == "-2.50"
    read_score(" 3.80")   == 3.8        round_score(3.8)      == "3.8"
    read_score("3,8")     == 3.8        round_score(0.001234) == "0.00123"
    read_score("1,125")   is None

Solutions are read in English notation: a comma groups thousands, a point starts the decimals. A score may have a
decimal comma if it is unambiguous: '1,125' may be more than a thousand or a little more than one.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

# A minus is a sign only if no operand precedes it: '16-3' ends in 3, '= -3' in -3.
_NUMBER = re.compile(r"(?P<sign>(?<![\w)%])[-−])?[$€£¥]?(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)")
# Thousands come in groups of three after 1 to 999: anything else with one comma has decimals.
_COMMA = re.compile(r"[-+]?(0,\d+|\d+,(\d{1,2}|\d{4,}))")


def find_final_number(text: str) -> str | None:
    """The first number after the last '####', or else the last number of the text."""
    _, mark, tail = text.rpartition("####")
    marked = _NUMBER.search(tail) if mark else None
    if marked is not None:
        return _plain(marked)
    numbers = list(_NUMBER.finditer(text))
    return _plain(numbers[-1]) if numbers else None


def _plain(match: re.Match[str]) -> str:
    sign = "-" if match["sign"] else ""
    return sign + match["digits"].replace(",", "")


def read_score(text: str) -> float | None:
    """The finite number that the whole text is, with a decimal point or an unambiguous decimal comma, or None."""
    if _COMMA.fullmatch(text.strip()):
        text = text.replace(",", ".")
    try:
        value = float(text) if "_" not in text else math.nan  # Python allows _ between digits
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def write_score(value: float, digits: int | None = None) -> str:
    """In plain decimals without trailing zeros, with all digits or `digits` significant ones."""
    text = format(Decimal(repr(value) if digits is None else f"{value:.{digits}g}"), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def round_score(value: float) -> str:
    """With two decimals, or three significant digits if that is more, without trailing zeros."""
    exact = Decimal(repr(value))
    places = max(2, 2 - exact.adjusted()) if value else 2
    return write_score(float(round(exact, places)))
