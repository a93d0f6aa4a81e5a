"""What a reader's browser makes of the pages: Debian's chromium, driven by Playwright, without a network."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest

from seqfit.comparison.quantities import QUANTITIES
from seqfit.comparison.records import Figure, dump_results, read_results
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.html import code, disclosure, element, figure, figures, render_page, section, table
from seqfit.reporting.live import serve_live
from seqfit.reporting.page import report
from seqfit.rundir import files

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; the extra test has it").expect

expect.set_options(timeout=240_000)  # other tests may need the core

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenTab = Callable[..., Any]
PAPER_WIDTH = 695  # pixels of A4 upright between the margins in page.css


def draw(axis: str, last: float = 4.0) -> go.Figure:
    lines = [
        go.Scatter(x=[1, 2, 3], y=[9.0, 6.0, last], name=f"run {number}", line={"color": f"var(--series-{number})"})
        for number in (1, 2)
    ]
    layout = {"template": "none", "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
    return go.Figure(lines, layout={**layout, "xaxis": {"title": {"text": axis}}, "font": {"color": "var(--quiet)"}})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with a chart of two axes, a chart of one, a wide table, a disclosure and a command."""
    loss = figure(draw("step"), "Loss & more", "per token", name="loss", choices={"minutes": draw("minutes")})
    wide = table([f"column {number}" for number in range(30)], [[f"text-{number}" for number in range(30)]])
    command = element("pre", element("code", "seqfit train demo 'a<b'"), class_="copy")
    parts = [
        section("Curves", figures([loss, figure(draw("step"), "Rate")])),
        section("Table", wide),
        section("Again", command, disclosure("Recipe", code("model: long " + "x" * 300))),
    ]
    path = tmp_path_factory.mktemp("small") / "page.html"
    path.write_text(render_page("small", parts), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, make_run: Callable[[Path], Path], trained_run: Path
) -> dict[str, Path]:
    """The real pages, of one run, of ten ways, and of a run that was really trained."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [make_run(folder / f"run-{number}") for number in range(10)]
    for number, run in enumerate(runs):
        recipe = load_recipe(run / files.RECIPE, [f"train.learning_rate={number + 1}e-4"])
        (run / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    subjects = {"one": runs[0], "ten": runs, "trained": trained_run}
    return {name: report(subject, folder / f"{name}.html") for name, subject in subjects.items()}


def lines_of(page: Page) -> list[int]:
    """How many marks each figure has: lines, points or bars that are not empty."""
    marks = ".plot .trace path, .plot .points path, .plot .point path"
    counted = "figure => [...figure.querySelectorAll(marks)].filter(mark => mark.getAttribute('d')).length"
    return page.evaluate(f"marks => [...document.querySelectorAll('figure')].map({counted})", marks)


def colour_of(page: Page, line: int = 0) -> str:
    return page.locator("figure .js-line").nth(line).evaluate("line => getComputedStyle(line).stroke")


def ground_of(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def names_of(page: Page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('figure')].map(figure => figure.dataset.name)")


@pytest.mark.parametrize("which", ["one", "ten", "trained"])
def test_a_page_draws_every_chart_asks_for_nothing_and_complains_of_nothing(
    which: str, pages: dict[str, Path], open_tab: OpenTab
) -> None:
    tab = open_tab(pages[which].as_uri())
    assert tab.asked == [pages[which].as_uri()]
    assert tab.said == []
    marks = lines_of(tab.page)
    assert len(marks) >= 4
    assert min(marks) > 0
    expected = {"machine", "step-breakdown", "lengths-train-source"} if which == "trained" else {"loss"}
    assert expected <= set(names_of(tab.page))


def test_ten_groups_are_ten_entries_of_the_legend(pages: dict[str, Path], open_tab: OpenTab) -> None:
    page = open_tab(pages["ten"].as_uri()).page
    expect(page.locator('figure[data-name="f1"] .legendtext')).to_have_count(10)


@pytest.mark.parametrize("which", ["one", "ten", "trained"])
def test_a_phone_scrolls_downwards_only(which: str, pages: dict[str, Path], open_tab: OpenTab) -> None:
    page = open_tab(pages[which].as_uri(), viewport={"width": 390, "height": 844}).page
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    for part in ("disclosure", "fold"):
        for summary in page.locator(f".{part} > summary:visible").all()[:10]:
            summary.click()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_the_page_of_a_comparison_is_as_good(comparison_path: Path, tmp_path: Path, open_tab: OpenTab) -> None:
    address = report(comparison_path, tmp_path / "comparison.html").as_uri()
    tab = open_tab(address, viewport={"width": 390, "height": 844})
    assert (tab.asked, tab.said) == ([address], [])
    assert min(lines_of(tab.page)) > 0
    assert tab.page.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_the_anatomy_of_memory_is_drawn_for_every_device(
    comparison_path: Path, tmp_path: Path, open_tab: OpenTab
) -> None:
    page = open_tab(report(comparison_path, tmp_path / "comparison.html").as_uri()).page
    chart = page.locator('figure[data-name="memory-anatomy"]')
    bars, legend = chart.locator(".ytick text"), chart.locator(".legendtext")
    expect(bars).to_have_count(6)  # three candidates, predicted and measured
    expect(legend).to_have_text(["weights", "activations", "measured"])
    chart.get_by_role("button", name="Tesla V100").click()
    expect(bars).to_have_count(4)  # predicted, and ddp2 as well
    expect(legend).to_have_text(["weights", "activations", "allocator and CUDA context", "predicted total"])
    assert chart.locator(".bars .point path").count() >= 10


def test_the_sums_of_bars_are_whole_on_a_phone(comparison_path: Path, tmp_path: Path, open_tab: OpenTab) -> None:
    address = report(comparison_path, tmp_path / "comparison.html").as_uri()
    page = open_tab(address, viewport={"width": 390, "height": 844}).page
    chart = page.locator('figure[data-name="memory-anatomy"] .plot')
    edge = chart.bounding_box()
    sums = chart.locator(".textpoint text")
    assert sums.count() == 6
    for text in sums.all():
        box = text.bounding_box()
        assert box["x"] + box["width"] <= edge["x"] + edge["width"]


# Words of an element of which not all letters stand on one line.
BROKEN_WORDS = r"""cell => {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\s/]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


def test_a_printed_comparison_of_all_quantities_fits_the_paper(
    comparison_path: Path, tmp_path: Path, open_tab: OpenTab
) -> None:
    found = read_results(comparison_path)
    names = [*QUANTITIES, "accuracy", "macro_f1"]
    cells = {name: Figure((98.76, 98.76), 98.76, 1.0, 0.001, is_significant=False) for name in names}
    results = tuple(replace(one, figures=cells) if one.figures else one for one in found.results)
    dump_results(replace(found, results=results), comparison_path)
    address = report(comparison_path, tmp_path / "comparison.html").as_uri()
    page = open_tab(address, viewport={"width": PAPER_WIDTH, "height": 1000}).page
    page.emulate_media(media="print")
    heads = page.locator(".results th").all()
    assert len(heads) > len(names)
    assert [word for head in heads for word in head.evaluate(BROKEN_WORDS)] == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PAPER_WIDTH


def test_ten_runs_are_one_small_file(pages: dict[str, Path]) -> None:
    assert pages["ten"].stat().st_size < 6_000_000


def test_wide_tables_scroll_in_themselves_on_a_phone(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, viewport={"width": 390, "height": 844}).page
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    inner, outer = page.locator(".scroll").evaluate("area => [area.scrollWidth, area.clientWidth]")
    assert inner > 2 * outer
    boxes = [box.bounding_box() for box in page.locator("figure").all()]
    assert boxes[0]["x"] == boxes[1]["x"]  # one to a row
    assert boxes[1]["y"] > boxes[0]["y"] + boxes[0]["height"]


def test_a_long_legend_does_not_eat_the_chart(tmp_path: Path, open_tab: OpenTab) -> None:
    lines = [go.Scatter(x=[1, 2], y=[1, 2], name=f"a way with a long name {number}") for number in range(10)]
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"}
    crowded = go.Figure(lines, layout={"template": "none", "legend": legend, "margin": {"t": 10, "b": 8}})
    path = tmp_path / "page.html"
    path.write_text(render_page("crowded", [figures([figure(crowded, "Loss")])]), "utf-8")
    for width in (390, 1200):
        page = open_tab(path.as_uri(), viewport={"width": width, "height": 844}).page
        assert page.locator(".nsewdrag").bounding_box()["height"] > 120


def test_the_axis_is_chosen_by_mouse_and_by_keys(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small).page
    title = page.locator('figure[data-name="loss"] .xtitle')
    expect(title).to_have_text("step")
    minutes, step = page.get_by_role("button", name="minutes"), page.get_by_role("button", name="step")
    minutes.click()
    expect(title).to_have_text("minutes")
    expect(minutes).to_have_attribute("aria-pressed", "true")
    expect(step).to_have_attribute("aria-pressed", "false")
    step.focus()
    page.keyboard.press("Enter")
    expect(title).to_have_text("step")


def test_the_page_follows_the_system_into_the_dark(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, color_scheme="light").page
    light = (ground_of(page), colour_of(page, 0), colour_of(page, 1))
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = (ground_of(page), colour_of(page, 0), colour_of(page, 1))
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert (ground_of(page), colour_of(page, 0), colour_of(page, 1)) == light


def test_the_readers_own_choice_of_colours_is_remembered(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, color_scheme="light").page
    light = colour_of(page)
    button = page.get_by_role("button", name="Dark colours")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    dark = colour_of(page)
    assert dark != light
    page.reload()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("figure .js-line").first).to_have_css("stroke", dark)
    button.click()  # back to what the system says, which is followed again
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_printed_page_is_light_whole_and_without_buttons(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, color_scheme="light").page
    light = colour_of(page)
    page.get_by_role("button", name="Dark colours").click()
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("figure .js-line").first).to_have_css("stroke", light)
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink')").strip() == "#1c1d22"
    assert {plot.get_attribute("width") for plot in page.locator(".main-svg").all()} == {"640"}
    assert page.locator("button:visible").count() == 0
    assert page.get_by_text("model: long").is_visible()
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not page.get_by_text("model: long").is_visible()
    expect(page.locator("figure .js-line").first).not_to_have_css("stroke", light)
    assert "640" not in {plot.get_attribute("width") for plot in page.locator(".main-svg").all()}


def test_the_browser_itself_prints_the_charts(pages: dict[str, Path], open_tab: OpenTab) -> None:
    tab = open_tab(pages["one"].as_uri())
    pdf = tab.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert tab.said == []
    assert 'width="640"' not in tab.page.locator(".main-svg").first.evaluate("plot => plot.outerHTML")  # and is back


def test_a_chart_is_saved_as_it_is_shown_but_light(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, color_scheme="dark").page
    loss = page.locator('figure[data-name="loss"]')
    loss.get_by_role("button", name="minutes").click()
    with page.expect_download() as saved:
        loss.get_by_role("button", name="Save Loss & more as SVG").click()
    assert saved.value.suggested_filename == "loss-minutes.svg"
    text = Path(saved.value.path()).read_text("utf-8")
    words = {found.text for found in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    assert {"Loss & more", "per token", "minutes", "run 1"} <= words
    assert "rgb(58, 84, 214)" in text or "#3a54d6" in text  # --series-1 of the light theme
    loss.get_by_role("button", name="step").click()
    with page.expect_download() as saved:
        loss.get_by_role("button", name="Save Loss & more as PNG").click()
    assert saved.value.suggested_filename == "loss.png"
    content = Path(saved.value.path()).read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (2160, 3 * 452)


def test_a_command_is_copied_as_it_is_written(small: str, open_tab: OpenTab) -> None:
    page = open_tab(small, permissions=["clipboard-read", "clipboard-write"]).page
    button = page.locator(".copy-button")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "seqfit train demo 'a<b'"


def test_a_script_in_a_prediction_is_shown_and_not_run(pages: dict[str, Path], open_tab: OpenTab) -> None:
    tab = open_tab(pages["one"].as_uri())
    assert tab.page.get_by_text("<script>alert('prediction')</script>").count() >= 1
    assert [said for said in tab.said if said.startswith("dialog")] == []


def test_even_markup_that_slipped_in_runs_no_script(small: str, open_tab: OpenTab) -> None:
    tab = open_tab(small)
    hostile = """<img src="data:," onerror="window.ran = true"><a id="trap" onclick="window.ran = true">x</a>"""
    tab.page.evaluate("text => document.body.insertAdjacentHTML('beforeend', text)", hostile)
    tab.page.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'window.ran = true';"
        " document.body.append(script); fetch('https://example.org/').catch(() => 0); }"
    )
    tab.page.locator("#trap").click()
    assert tab.page.evaluate("window.ran") is None
    assert tab.asked == [small]


def append_step(run: Path, loss: float) -> None:
    last = json.loads((run / files.STEPS).read_text("utf-8").splitlines()[-1])
    record = {**last, "step": last["step"] + 2, "loss": loss, "time": last["time"] + 4}
    with open(run / files.STEPS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")


def last_step(page: Page) -> str:
    """The step up to which the loss is drawn, as the chart itself knows it."""
    return page.locator('figure[data-name="loss"] .plot').evaluate("plot => Math.max(...plot.data.flatMap(t => t.x))")


def test_a_watched_page_follows_its_run_and_leaves_the_reader_in_place(
    tmp_path: Path, make_run: Callable[[Path], Path], open_tab: OpenTab
) -> None:
    run = make_run(tmp_path / "runs" / "a")
    with serve_live([tmp_path / "runs"]) as url:
        tabs = [open_tab(url), open_tab(url)]
        page = tabs[0].page
        expect(page.locator(".live")).to_have_text("live")
        version = page.locator("main").get_attribute("data-version")
        page.evaluate("window.sameDocument = true")
        summary = page.locator(".disclosure > summary").last
        summary.scroll_into_view_if_needed()
        summary.click()
        before = page.evaluate("[scrollY, document.querySelectorAll('details[open]').length]")
        drawn = last_step(page)
        append_step(run, loss=0.25)
        for tab in tabs:
            expect(tab.page.locator("main")).not_to_have_attribute("data-version", version or "")
            assert last_step(tab.page) > drawn
        assert page.evaluate("[scrollY, document.querySelectorAll('details[open]').length]") == before
        assert page.evaluate("window.sameDocument") is True
        make_run(tmp_path / "runs" / "b")
        expect(page.locator("main")).to_contain_text("b")
        assert [said for tab in tabs for said in tab.said] == []
    expect(page.locator(".live")).to_have_text("not connected")


def test_a_watched_page_keeps_the_chosen_axis(
    tmp_path: Path, open_tab: OpenTab, make_run: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "a")
    lasts = iter([4.0, 3.0, 2.0, 1.0])

    def build(paths: object) -> tuple[str, list[str]]:
        last = next(lasts)
        loss = figure(draw("step", last), "Loss", name="loss", choices={"minutes": draw("minutes", last)})
        new = [section("New", element("p", "just arrived"))] if last < 4 else []
        return f"title {last}", [*new, section("Curves", figures([loss])), section("End", element("p", f"at {last}"))]

    monkeypatch.setattr("seqfit.reporting.live.build_parts", build)
    with serve_live([run]) as url:
        page = open_tab(url).page
        page.get_by_role("button", name="minutes").click()
        page.evaluate("document.querySelector('.plot').marked = true")
        append_step(run, 0.1)
        expect(page.get_by_text("at 3.0")).to_be_visible()
        expect(page).to_have_title("title 3.0")
        expect(page.locator("figure .xtitle")).to_have_text("minutes")
        assert page.locator("h2").all_text_contents() == ["New", "Curves", "End"]
        plot = page.locator(".plot")
        assert plot.evaluate("plot => [plot.marked, plot.data[0].y[2]]") == [True, 3.0]


def test_a_watched_page_goes_on_after_a_drawing_that_failed(
    tmp_path: Path, open_tab: OpenTab, make_run: Callable[[Path], Path]
) -> None:
    run = make_run(tmp_path / "a")
    with serve_live([run]) as url:
        page = open_tab(url).page
        expect(page.locator(".live")).to_have_text("live")
        page.evaluate("window.working = Plotly.react; Plotly.react = async () => { throw new Error('no room'); }; 0")
        append_step(run, 0.2)
        expect(page.locator(".live")).to_have_text("not up to date: no room")
        page.evaluate("Plotly.react = window.working; 0")
        append_step(run, 0.1)
        expect(page.locator(".live")).to_have_text("live")
        steps = (run / files.STEPS).read_text("utf-8").splitlines()
        assert last_step(page) == json.loads(steps[-1])["step"]


def test_rows_are_filtered_searched_grouped_and_sorted_with_the_keyboard(
    make_run: Callable[[Path], Path], tmp_path: Path, open_tab: OpenTab
) -> None:
    run = make_run(tmp_path / "run")
    path = run / files.evaluation("test")
    evaluation = json.loads(path.read_text("utf-8"))
    for place, row in enumerate(evaluation["predictions"]):
        row["confidence"] = place / 100
        row["prediction"] = row["prediction"].replace("otra ciudad", "Ciudad otra")
        row["source"] = ("¿Quién? " if place % 2 else "¿Dónde? ") + row["source"].replace("¿Cuál", "Cuál")
    path.write_text(json.dumps(evaluation), "utf-8")
    tab = open_tab(report(run, tmp_path / "page.html").as_uri(), viewport={"width": 390, "height": 844})
    page = tab.page
    rows, status = page.locator(".answer:visible"), page.locator(".analysis .status")
    expect(rows).to_have_count(10)
    expect(status).to_have_text("10 of 61")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    page.get_by_label("Search in the rows").focus()
    page.keyboard.type("País 41?")
    expect(rows).to_have_count(1)
    expect(status).to_have_text("1 of 1")
    for _ in range(len("País 41?")):
        page.keyboard.press("Backspace")
    page.keyboard.press("Tab")  # to the order
    expect(page.get_by_label("Order of the rows")).to_be_focused()
    page.get_by_label("Order of the rows").select_option("sure")
    expect(rows.first).to_contain_text("confidence 0.60")
    page.get_by_label("Group of rows").select_option("question: quién")
    expect(status).to_have_text("10 of 30")
    expect(rows.first).to_contain_text("Quién")
    page.get_by_role("button", name="Show more").focus()
    page.keyboard.press("Enter")
    expect(status).to_have_text("30 of 30")
    expect(page.locator(".answer:visible").nth(10)).to_be_focused()
    page.get_by_role("button", name="Incorrect").focus()
    page.keyboard.press("Enter")
    expect(rows.locator(".badge.good")).to_have_count(0)
    assert page.locator(".answer:visible del").count() > 0
    assert tab.said == []
