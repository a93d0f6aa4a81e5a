from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import re
from importlib import resources

import plotly.graph_objects as go
import pytest

from seqfit.reporting.html import Html, code, element, figure, render_page, render_parts

CSS = (resources.files("seqfit.reporting") / "assets" / "page.css").read_text("utf-8")


def draw(axis: str = "step", **trace: object) -> go.Figure:
    line = {"x": [1, 2], "y": [0.5, 1 / 3], **trace}
    return go.Figure(go.Scatter(line), layout={"xaxis": {"title": {"text": axis}}, "template": "none"})


def data_of(shown: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json">(.*?)</script>', shown, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_page_without_figures_stays_small() -> None:
    page = render_page("a < b", [element("p", "text")])
    assert "<title>a &lt; b</title>" in page
    assert len(page) < 25_000


def test_a_page_with_figures_holds_plotly_once_and_loads_nothing() -> None:
    page = render_page("page", [figure(draw(), "rate") for _ in range(3)])
    assert 4_000_000 < len(page) < 8_000_000
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=", page)
    assert re.findall(r'<link rel="(\w+)" href="(data:)?', page) == [("icon", "data:")]


def test_text_in_a_figure_cannot_end_its_script() -> None:
    shown = figure(draw(name="</script><b>"), "</figure>")
    assert shown.count("</script>") == 1
    assert "\\u003c/script>" in shown
    assert "&lt;/figure&gt;" in shown
    assert data_of(shown)["step"]["data"][0]["name"] == "</script><b>"


def test_charts_over_other_axes_are_chosen_by_buttons_and_the_first_is_pressed() -> None:
    shown = figure(draw(), "Loss", name="loss", choices={"minutes": draw("minutes"), "tokens": draw("tokens")})
    assert list(data_of(shown)) == ["step", "minutes", "tokens"]
    assert re.findall(r'data-choice="(\w+)" aria-pressed="(\w+)"', shown) == [
        ("step", "true"),
        ("minutes", "false"),
        ("tokens", "false"),
    ]
    assert 'data-name="loss"' in shown


def test_a_chart_that_is_among_its_choices_is_not_there_twice() -> None:
    first = draw("optimizer step")
    shown = figure(first, "Loss", choices={"step": first, "minutes": draw("minutes")})
    assert list(data_of(shown)) == ["step", "minutes"]


def test_a_single_chart_has_no_choice_but_can_be_saved() -> None:
    shown = figure(draw(), "Peak memory, GPU 0")
    assert "data-choice" not in shown
    assert 'aria-label="Save Peak memory, GPU 0 as PNG"' in shown
    assert 'data-name="peak-memory-gpu-0"' in shown


@pytest.mark.parametrize(("name", "file"), [("../x", "x"), ("/tmp/x", "tmp-x"), ("a\\b", "a-b"), ("..", "figure")])
def test_the_name_of_a_score_names_no_other_folder(name: str, file: str) -> None:
    assert f'<figure data-name="{file}">' in figure(draw(), "Score", name=name)


def test_numbers_have_six_digits_and_whole_ones_all() -> None:
    shown = data_of(figure(draw(x=[12_345_678, 2], y=[1 / 3, 1e-9 / 3]), "Loss"))
    trace = shown["step"]["data"][0]
    assert (trace["x"], trace["y"]) == ([12_345_678, 2], [0.333333, 3.33333e-10])


def test_a_text_to_copy_has_a_button() -> None:
    command = element("pre", element("code", "seqfit train a < b"), class_="copy")
    shown = render_parts([command, code("no command"), Html('<code class="copy">x=1</code>')])
    assert shown.count('<button type="button" class="copy-button">Copy</button>') == 2
    assert "<code>no command</code></pre>\n" in shown
    assert "seqfit train a &lt; b</code></pre><button" in shown


@pytest.mark.parametrize("use", ["read", "watch", "export"])
def test_the_policy_names_the_pages_own_scripts_and_no_other(use: str) -> None:
    page = render_page("page", [figure(draw(), "rate")], use=use)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert ("connect-src 'self'" in policy) == (use == "watch")


def series_of(theme: str) -> list[str]:
    light, dark = CSS.split("@media screen", 1)
    colours = re.findall(r"--series-\d: (#[0-9a-f]{6});", light if theme == "light" else dark)
    assert len(colours) == 8
    return colours


def linear(colour: str) -> list[float]:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def luminance(colour: str) -> float:
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


# What eyes without one kind of cone see: Machado, Oliveira and Fernandes (2009), table 1, severity 1.0.
SIGHT = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """In OKLab, where equal distances look equally far apart."""
    rgb = [max(0.0, sum(a * b for a, b in zip(row, linear(colour), strict=True))) for row in SIGHT[sight]]
    long, medium, short = (
        sum(a * b for a, b in zip(row, rgb, strict=True)) ** (1 / 3)
        for row in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    )
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_series_can_be_distinguished_with_colour_blindness(theme: str, sight: str) -> None:
    places = [seen(colour, sight) for colour in series_of(theme)]
    apart = [sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5 for pair in itertools.combinations(places, 2)]
    assert min(apart) > 0.08  # 0.02 is just noticeable side by side


@pytest.mark.parametrize(("theme", "surface"), [("light", "#ffffff"), ("dark", "#1a1c22")])
def test_every_series_stands_out_from_the_page(theme: str, surface: str) -> None:
    for colour in series_of(theme):
        low, high = sorted([luminance(colour), luminance(surface)])
        assert (high + 0.05) / (low + 0.05) >= 3  # WCAG 2.2, 1.4.11
