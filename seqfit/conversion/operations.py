"""Values of a script combined: arithmetic and comparisons of constants, and text that has columns in it.

2 * 8                                    16
"summarize: " + ColumnText("{text}")     ColumnText("summarize: {text}")
"%s/logs" % OUT, "{}/logs".format(OUT)   as a join of their parts
anything with an Unknown                 that Unknown
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seqfit.conversion.values import ColumnText, Unknown, is_constant

_LONGEST_TEXT, _LARGEST_POWER = 10_000, 64
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, inside: item in inside,
    ast.NotIn: lambda item, inside: item not in inside,
}


def combine(op: ast.AST, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Add) and (isinstance(left, ColumnText) or isinstance(right, ColumnText)):
        return join_text([left, right])
    if isinstance(op, ast.Mod) and isinstance(left, str) and not is_constant(right):
        parts = right if isinstance(right, list) else [right]
        pieces = left.split("%s")
        if len(pieces) == len(parts) + 1:
            return join_text([one for pair in zip(pieces, [*parts, ""], strict=True) for one in pair])
    for one in (left, right):
        if isinstance(one, Unknown):
            return one
    function = _OPERATORS.get(type(op))
    if isinstance(op, ast.Pow) and isinstance(right, int | float) and abs(right) <= _LARGEST_POWER:
        function = operator.pow
    if isinstance(op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
        return left | right
    if isinstance(op, ast.Mult) and isinstance(left, str | list | tuple) | isinstance(right, str | list | tuple):
        return Unknown("it is repeated")
    if isinstance(op, ast.Div) and isinstance(left, str) and isinstance(right, str):
        return f"{left.rstrip('/')}/{right}"  # paths
    is_list = isinstance(op, ast.Add) and isinstance(left, list) and isinstance(right, list)
    if function is None or not (is_list or (is_constant(left) and is_constant(right))):
        return Unknown("it is computed when it runs")
    try:
        found = function(left, right)
    except (ArithmeticError, TypeError, ValueError, OverflowError) as error:
        return Unknown(f"it can't be computed: {error}")
    return Unknown("its text is too long") if isinstance(found, str) and len(found) > _LONGEST_TEXT else found


def join_text(parts: Sequence[Any]) -> Any:
    """Text from pieces; a template where one of them comes from a column."""
    texts = []
    for part in parts:
        if isinstance(part, Unknown):
            return part
        if isinstance(part, ColumnText):
            texts.append(part.text)
        elif is_constant(part):
            text = str(part)
            if any(isinstance(one, ColumnText) for one in parts) and any(mark in text for mark in "{}"):
                return Unknown("text with braces cannot be a part of a template")
            texts.append(text)
        else:
            return Unknown("a part of the text is known only when it runs")
    joined = "".join(texts)
    return ColumnText(joined) if any(isinstance(part, ColumnText) for part in parts) else joined


def format_text(text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    parts: list[Any] = []
    count = 0
    for before, name, _, _ in string.Formatter().parse(text):
        parts.append(before)
        if name is None:
            continue
        if name == "" or name.isdecimal():
            index = int(name) if name else count
            count += 1
            parts.append(args[index] if index < len(args) else Unknown("a part of the text is missing"))
        else:
            parts.append(kwargs.get(name, Unknown("a part of the text is missing")))
    return join_text(parts)
