from __future__ import annotations

import re

from seqfit.report.charts import draw_series
from seqfit.report.document import figure, render_page
from seqfit.report.elements import element


def test_a_page_without_figures_stays_small() -> None:
    page = render_page("a < b", [element("p", "text")])
    assert "<title>a &lt; b</title>" in page
    assert len(page) < 20_000


def test_a_page_with_figures_holds_plotly_once_and_loads_nothing() -> None:
    drawn = [figure(draw_series("rate", {1: 0.5}), "rate") for _ in range(3)]
    page = render_page("page", drawn)
    assert 4_000_000 < len(page) < 8_000_000
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=", page)
    assert "<link" not in page


def test_text_in_a_figure_cannot_end_its_script() -> None:
    shown = figure(draw_series("</script><b>", {1: 0.5}), "</figure>")
    assert shown.count("</script>") == 1
    assert "\\u003c\\u002fscript\\u003e" in shown
    assert "&lt;/figure&gt;" in shown
