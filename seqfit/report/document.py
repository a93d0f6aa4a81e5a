"""A whole page: sections and figures come in, one HTML file that needs nothing else goes out.

Style, script and plotly's own JavaScript (from its wheel, once, and only where there is a figure) are written into
the page, so it opens from a mail or a memory stick without a network. Colours are CSS variables; the script draws the
figures with their values and draws them anew when the reader's system turns dark.
"""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from seqfit.report.elements import Html, element, join

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figure(drawn: go.Figure, title: str, note: str = "") -> Html:
    """A figure with its title; the script finds its data in the JSON beside it."""
    data = Html(drawn.to_json(engine="json"))  # plotly writes '<' as \u003c: text in it cannot end the element
    caption = element("figcaption", element("b", title), element("span", note, class_="note"))
    plot = element("div", class_="plot", role="img", aria_label=title)
    return element("figure", caption, plot, element("script", data, type="application/json"))


def figures(drawn: list[Html]) -> Html:
    """Two to a row where the page is wide enough."""
    return element("div", *drawn, class_="figures")


def render_page(title: str, parts: list[Html]) -> str:
    """The parts as one file."""
    body = join(parts)
    return Template(_asset("page.html")).substitute(
        title=element("title", title),
        style=_asset("page.css"),
        body=body,
        plotly=_plotly_script() if '<div class="plot"' in body else "",
        script=_asset("page.js"),
    )


def _plotly_script() -> Html:
    from plotly.offline import get_plotlyjs

    return Html(f"<script>{get_plotlyjs()}</script>")


def _asset(name: str) -> str:
    return (resources.files("seqfit.report") / "assets" / name).read_text("utf-8")
