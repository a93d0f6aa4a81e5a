"""Lists that a table holds as text: the text comes in, its items go out, or None where it is no list.

parse_list('["joy", "anger"]')   == ["joy", "anger"]     JSON
parse_list("['joy', 'anger']")   == ["joy", "anger"]     Python's form, which pandas writes into a CSV file
parse_list("['joy' 'anger']")    == ["joy", "anger"]     numpy's form, which Python itself reads as 'joyanger'
parse_list("joy, anger")         is None
"""

from __future__ import annotations

import ast
import io
import json
import tokenize

_NAMES = {"None": "", "nan": "", "True": "true", "False": "false"}
_SKIPPED = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)


def parse_list(text: str) -> list[str] | None:
    """The items as text; None counts as empty."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        items = json.loads(text)
    except ValueError:
        return _parse_tokens(text)
    if any(isinstance(item, list | dict) for item in items):
        return None
    return [_NAMES.get(str(item), str(item)) if item is None or isinstance(item, bool) else str(item) for item in items]


def _parse_tokens(text: str) -> list[str] | None:
    """Token by token: two strings side by side are two items, whether or not a comma stands between them."""
    items: list[str] = []
    sign = ""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        if sum(token.string == "[" for token in tokens) > 1:
            return None
        for token in tokens:
            if token.type == tokenize.STRING and isinstance(value := ast.literal_eval(token.string), str):
                items.append(value)
            elif token.type == tokenize.NUMBER:
                items.append(sign + token.string)
            elif token.string in _NAMES and token.type == tokenize.NAME:
                items.append(_NAMES[token.string])
            elif token.string not in ("[", "]", ",", "-") and token.type not in _SKIPPED:
                return None
            sign = "-" if token.string == "-" else ""
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return items
