"""HTML: elements of markup, and a self-contained page.

`Html` is text that is already markup. Everything else that reaches a page is escaped, so that a prediction such as
`<script>` is shown and never run:

    table(["word", "count"], [["<b>", 3]])   ->   ...<td>&lt;b&gt;</td><td class="number">3</td>...

Style, scripts and plotly's own JavaScript (from its wheel, and only where there is a figure) are part of the page, so
it opens from a mail or a memory stick without a network. A content security policy lets the browser run only these
scripts, known by their hashes, and load nothing: text that slipped in unescaped could do no harm.

Colours are CSS variables; the script draws the figures with their values, and again when the reader switches to dark
mode. A figure carries its data as JSON, one chart for each x axis that the reader may choose:

    figure(by_step, "Loss", name="loss", choices={"minutes": by_minute})
    ->  <figure data-name="loss" ...> buttons: step, minutes, PNG, SVG
        <script type="application/json">{"step": {"data": ..., "layout": ...}, "minutes": {...}}</script>
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import plotly.graph_objects as go


_FOLD_AT = 160  # characters of a cell before the rest is folded
_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"%|[KMB]|(?:[KMGT]i)?B(?:/s)?|[KMGTP]?FLOP/s|[nuµm]?s|min|h|d|°C|k?Wh?|k?J|tokens?(?:/s)?"
# '–', '12', '-3.5%', '3.2 GiB', '1 h 02 min', '71.2 ± 0.4': not '3 of 4 rows', which is a sentence.
_FIGURE = re.compile(rf"–|{_NUMBER}(?: ?(?:{_UNIT}))?(?: \d+ ?(?:{_UNIT}))?(?: ± {_NUMBER}(?: ?(?:{_UNIT}))?)?")


class Html(str):
    """Markup that goes into a page as it is."""

    __slots__ = ()


def markup(value: object) -> Html:
    """Escaped, unless it is markup already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object]) -> Html:
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
    notes = [element("p", note, class_="note")] if note else []
    return element("section", element("h2", title), *notes, *children)


def facts(pairs: Mapping[str, object]) -> Html:
    """Names and values in a row that wraps; empty values are left out."""
    shown = [(name, value) for name, value in pairs.items() if value not in (None, "")]
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in shown))


def tile(label: str, value: str, note: str = "") -> Html:
    parts = [element("div", label, class_="label"), element("div", value, class_="value")]
    return element("div", *parts, element("div", note, class_="note"), class_="tile")


def bullets(items: Iterable[object], *, class_: str | None = None) -> Html:
    return element("ul", *(element("li", item) for item in items), class_=class_)


def tiles(shown: Sequence[Html]) -> Html:
    return element("div", *shown, class_="tiles")


def table(
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    class_: str | None = None,
    numbers: Collection[int] = (),
) -> Html:
    """Numbers are right-aligned, text is left-aligned; wide tables scroll.

    `numbers` are columns of numbers that are not recognised as such, for example markup.
    """
    body = [list(row) for row in rows]
    numeric = [i in numbers or (all(_is_figure(row[i]) for row in body) and bool(body)) for i in range(len(columns))]
    classes = ["number" if right else None for right in numeric]
    head = [element("th", name, class_=kind) for name, kind in zip(columns, classes, strict=True)]
    lines = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)))
        for row in body
    ]
    grid = element("table", element("thead", element("tr", *head)), element("tbody", *lines), class_=class_)
    return element("div", grid, class_="scroll")


def folded(text: str) -> Html:
    if len(text) <= _FOLD_AT:
        return element("span", text, class_="text")
    start = text[:_FOLD_AT].rsplit(" ", 1)[0]
    shown = element("summary", element("span", start, class_="text"), element("span", " … more", class_="more"))
    return element("details", shown, element("span", text[len(start) :], class_="text"), class_="fold")


def disclosure(title: str, content: object) -> Html:
    return element("details", element("summary", title), content, class_="disclosure")


def code(text: str) -> Html:
    return element("pre", element("code", text))


def command_line(text: str) -> Html:
    return element("pre", text, class_="copy")


def badge(text: str, kind: str) -> Html:
    """A small label: good, bad or plain."""
    return element("span", text, class_=f"badge {kind}")


def swatch(colour: str, name: str) -> Html:
    look = f"display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px;background:{colour}"
    return element("span", element("i", style=look, aria_hidden="true"), name, style="white-space:nowrap")


def _is_figure(cell: object) -> bool:
    """A number, or text that is a number with its unit, or '–' for a missing one."""
    if isinstance(cell, int | float):
        return True
    return isinstance(cell, str) and not isinstance(cell, Html) and _FIGURE.fullmatch(cell) is not None


Use = Literal[
    "read",  # a file
    "watch",  # served, and updated while it is open
    "export",  # opened by a headless browser, which returns its charts as images
]
_OWN_SCRIPT: dict[Use, str | None] = {"read": None, "watch": "live.js", "export": "export.js"}
_DIGITS = 6  # of numbers in charts; all sixteen would double the page
_COPIED = re.compile(r'<(pre|code) class="copy[^"]*">.*?</\1>', re.DOTALL)


def figure(
    drawn: go.Figure, title: str, note: str = "", *, name: str = "", choices: Mapping[str, go.Figure] | None = None
) -> Html:
    """A figure with its title and its buttons.

    `name` becomes the file name of its images, in lower case, digits and hyphens: it may be that of a score in the
    records, and must not name another folder. `choices` are the same chart over other x axes, by the label of their
    button; `drawn` is shown first, and if it is not among them, labelled by the title of its x axis.
    """
    others = dict(choices or {})
    titles = [str(axis.title.text) for axis in drawn.select_xaxes() if axis.title.text]  # the last is the lowest
    own = titles[-1] if titles else "first"
    charts = {next((word for word, chart in others.items() if chart is drawn), own): drawn, **others}
    data = {choice: _compact(json.loads(chart.to_json(engine="json"))) for choice, chart in charts.items()}
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")  # can't end itself
    caption = element("figcaption", element("b", title), element("span", note, class_="note"), _buttons(title, data))
    plot = element("div", class_="plot", role="img", aria_label=title)
    script = element("script", Html(written), type="application/json")
    file_name = re.sub(r"[^a-z0-9]+", "-", (name or title).lower()).strip("-") or "figure"
    return element("figure", caption, plot, script, data_name=file_name)


def figures(drawn: Sequence[Html]) -> Html:
    """Two per row where the page is wide enough."""
    return element("div", *drawn, class_="figures")


def render_page(title: str, parts: Sequence[Html], *, use: Use = "read", scripts: Sequence[str] = ()) -> str:
    """`scripts`: assets of its own, behind those of every page."""
    body = render_parts(parts)
    used = []
    own = _OWN_SCRIPT[use]
    if own is not None or '<div class="plot"' in body:  # a live page may get figures later
        from plotly.offline import get_plotlyjs

        used += [str(get_plotlyjs()), _asset("figures.js")]
    used += [_asset(name) for name in ([] if own is None else [own]) + [*scripts]]
    return render_document(title, body, used, connects=use == "watch")


def render_document(
    title: str, body: Html, scripts: Sequence[str] = (), *, style: str = "", connects: bool = False
) -> str:
    """A whole page in the project's style. `connects`: its scripts may talk to the server that it came from."""
    theme, all_scripts = _asset("theme.js"), [_asset("page.js"), *scripts]
    return Template(_asset("page.html")).substitute(
        policy=_policy([theme, *all_scripts], connects),
        title=element("title", title),
        style=_asset("page.css") + style,
        theme=theme,
        body=body,
        scripts="\n".join(f"<script>{script}</script>" for script in all_scripts),
    )


def render_parts(parts: Sequence[Html]) -> Html:
    """The body of the page; commands get a Copy button."""
    return Html(_COPIED.sub(_add_copy_button, join(parts)))


def _buttons(title: str, charts: Mapping[str, object]) -> Html:
    axes = [
        element("button", choice, type="button", data_choice=choice, aria_pressed="false" if number else "true")
        for number, choice in enumerate(charts)
    ]
    files = [
        element("button", kind.upper(), type="button", data_save=kind, aria_label=f"Save {title} as {kind.upper()}")
        for kind in ("png", "svg")
    ]
    chosen = [element("span", *axes, class_="choices", role="group", aria_label=f"{title} over")] if axes[1:] else []
    return element("span", *chosen, element("span", *files, class_="save"), class_="tools")


def _compact(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [_compact(item) for item in value]
    if isinstance(value, dict):
        return {key: _compact(item) for key, item in value.items()}
    return value


def _add_copy_button(found: re.Match[str]) -> str:
    button = element("button", "Copy", type="button", class_="copy-button")
    return element("div" if found[1] == "pre" else "span", Html(found[0]), button, class_="copyable")


def _policy(scripts: Sequence[str], connects: bool) -> str:
    """Nothing is loaded and no other script runs; a live page may connect to its own server."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{written}'" for written in hashes),
        "style-src": "'unsafe-inline'",  # plotly's own
        "img-src": "data: blob:",  # charts that are saved as PNG
        "connect-src": "'self'" if connects else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {where}" for what, where in allowed.items())


def _asset(name: str) -> str:
    return (resources.files("seqfit.reporting") / "assets" / name).read_text("utf-8")
