"""Pieces of HTML: numbers and text come in, escaped markup goes out.

The one idea: `Html` is text that is already markup. Everything else that reaches a page is escaped, so that a
prediction such as `<script>` is shown and never run.

    table(["word", "count"], [["<b>", 3]])   ->   ...<td>&lt;b&gt;</td><td class="number">3</td>...
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

_FOLD_AT = 160  # characters of a cell that are shown before the rest is folded away
_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"%|[KMB]|(?:[KMGT]i)?B(?:/s)?|[KMGTP]?FLOP/s|[nuµm]?s|min|h|d|°C|k?Wh?|k?J|tokens?(?:/s)?"
# '–', '12', '-3.5%', '3.2 GiB', '1 h 02 min', '71.2 ± 0.4': not '3 of 4 rows', which is a sentence.
_FIGURE = re.compile(rf"–|{_NUMBER}(?: ?(?:{_UNIT}))?(?: \d+ ?(?:{_UNIT}))?(?: ± {_NUMBER}(?: ?(?:{_UNIT}))?)?")


class Html(str):
    """Markup that may go into a page as it is."""

    __slots__ = ()


def markup(value: object) -> Html:
    """The value as markup: escaped, unless it is markup already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object]) -> Html:
    """One after the other, each escaped where it has to be."""
    return Html("\n".join(markup(part) for part in parts))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """`element("p", "a < b", class_="note")`; an attribute that is None is left out, one that is True has no value."""
    written = ""
    for name, value in attributes.items():
        spelt = name.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {spelt}"
        elif value is not None and value is not False:
            written += f' {spelt}="{markup(value)}"'
    return Html(f"<{tag}{written}>{''.join(markup(child) for child in children)}</{tag}>")


def section(title: str, *children: object, note: str = "") -> Html:
    """A part of the page under a heading, with a sentence on how to read it."""
    said = [element("p", note, class_="note")] if note else []
    return element("section", element("h2", title), *said, *children)


def facts(pairs: Mapping[str, object]) -> Html:
    """Names and values in a row that wraps; a value that is empty is left out."""
    shown = [(name, value) for name, value in pairs.items() if value not in (None, "")]
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in shown))


def tile(label: str, value: str, note: str = "") -> Html:
    """One figure, large."""
    parts = [element("div", label, class_="label"), element("div", value, class_="value")]
    return element("div", *parts, element("div", note, class_="note"), class_="tile")


def tiles(shown: Sequence[Html]) -> Html:
    """Several figures side by side."""
    return element("div", *shown, class_="tiles")


def table(
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    class_: str | None = None,
    numbers: Collection[int] = (),
) -> Html:
    """Numbers to the right, text to the left; wide tables scroll on their own.

    `numbers` are columns of numbers that do not look like it, such as markup.
    """
    body = [list(row) for row in rows]
    numeric = [i in numbers or (all(_is_figure(row[i]) for row in body) and bool(body)) for i in range(len(columns))]
    head = [
        element("th", name, class_="number" if right else None) for name, right in zip(columns, numeric, strict=True)
    ]
    lines = [
        element("tr", *(element("td", c, class_="number" if n else None) for c, n in zip(row, numeric, strict=True)))
        for row in body
    ]
    grid = element("table", element("thead", element("tr", *head)), element("tbody", *lines), class_=class_)
    return element("div", grid, class_="scroll")


def folded(text: str) -> Html:
    """A long text by its beginning, the rest behind a click."""
    if len(text) <= _FOLD_AT:
        return element("span", text, class_="text")
    start = text[:_FOLD_AT].rsplit(" ", 1)[0]
    shown = element("summary", element("span", start, class_="text"), element("span", " … more", class_="more"))
    return element("details", shown, element("span", text[len(start) :], class_="text"), class_="fold")


def disclosure(title: str, content: object) -> Html:
    """A part that is closed until it is asked for."""
    return element("details", element("summary", title), content, class_="disclosure")


def code(text: str) -> Html:
    """As written, in a fixed-width type."""
    return element("pre", element("code", text))


def command(text: str) -> Html:
    """A line to paste into a terminal."""
    return element("pre", text, class_="copy")


def badge(text: str, kind: str) -> Html:
    """A small label: good, bad or plain."""
    return element("span", text, class_=f"badge {kind}")


def swatch(colour: str, name: str) -> Html:
    """A name behind a spot of the colour that it has in charts."""
    look = f"display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px;background:{colour}"
    return element("span", element("i", style=look, aria_hidden="true"), name, style="white-space:nowrap")


def _is_figure(cell: object) -> bool:
    """A number, or text that is one with its unit, or that stands for a missing one."""
    if isinstance(cell, int | float):
        return True
    return isinstance(cell, str) and not isinstance(cell, Html) and _FIGURE.fullmatch(cell) is not None
