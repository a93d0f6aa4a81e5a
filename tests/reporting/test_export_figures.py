from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest

from seqfit.errors import RunError, SeqfitError
from seqfit.reporting.costs import show_memory
from seqfit.reporting.export_figures import BROWSER, export_figures, find_browser
from seqfit.reporting.html import Html, element, figure, figures
from seqfit.reporting.subject import read_report_subject

SVG = "{http://www.w3.org/2000/svg}"


def draw(axis: str, *, height: int | None = None) -> go.Figure:
    layout = {
        "template": "none",
        "height": height,
        "font": {"color": "var(--quiet)"},
        "xaxis": {"title": {"text": axis}},
    }
    line = {"x": [1, 2, 3], "y": [3.0, 2.0, 1.0], "line": {"color": "var(--series-2)"}}
    return go.Figure(go.Scatter(line), layout=layout)


def some_parts() -> Sequence[Html]:
    loss = figure(draw("step"), "Loss & more", "a < b", name="loss", choices={"minutes": draw("minutes")})
    return [
        element("h1", "run"),
        figures([loss, figure(draw("step", height=600), "Memory"), figure(draw("x"), "Memory")]),
    ]


@pytest.fixture(scope="module")
def folder(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures") / "new" / "figures"
    written = export_figures("run", some_parts(), folder)
    assert sorted(written) == sorted(folder.iterdir())
    return folder


def test_every_chart_is_a_file_over_each_of_its_axes(folder: Path) -> None:
    names = ["loss", "loss-minutes", "memory", "memory-2"]
    expected = {f"{name}.{kind}" for name in names for kind in ("svg", "png")} | {"figures.pdf"}
    assert {path.name for path in folder.iterdir()} == expected


def test_a_comparisons_memory_is_a_file_for_every_device(chromium: str, comparison_path: Path, tmp_path: Path) -> None:
    shown = show_memory(read_report_subject([comparison_path]))
    assert shown is not None
    export_figures("comparison", [shown], tmp_path / "figures")
    for name, bars in (("memory-anatomy", 6), ("memory-anatomy-Tesla-V100", 4)):
        words = [text.text for text in ElementTree.parse(tmp_path / "figures" / f"{name}.svg").iter(f"{SVG}text")]
        assert "weights" in words
        assert sum((word or "").strip().endswith((", predicted", ", measured")) for word in words) == bars


def test_no_name_leads_out_of_the_folder(chromium: str, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    hostile = [figure(draw("../step"), "Score", name=name) for name in ("../x", str(tmp_path / "y"))]
    export_figures("run", hostile, folder)
    assert list(tmp_path.iterdir()) == [folder]
    assert len(list(folder.iterdir())) == 5


def test_an_svg_says_what_it_shows_in_light_colours_on_white(folder: Path) -> None:
    text = (folder / "loss-minutes.svg").read_text("utf-8")
    tree = ElementTree.fromstring(text)
    words = [found.text for found in tree.iter(f"{SVG}text") if found.text]
    assert {"Loss & more", "a < b", "minutes"} <= set(words)
    assert tree.find(f"{SVG}rect").get("fill") == "#ffffff"
    assert "rgb(229, 97, 12)" in text or "#e5610c" in text  # --series-2 of the light theme
    assert "var(--" not in text
    lines = [path.get("d") for path in tree.iter(f"{SVG}path") if path.get("class") == "js-line"]
    assert len(lines) == 1
    assert len(lines[0]) > 10


def test_a_png_has_three_pixels_to_a_unit(folder: Path) -> None:
    for name in ("loss", "memory"):
        head = (folder / f"{name}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        tree = ElementTree.fromstring((folder / f"{name}.svg").read_text("utf-8"))
        assert struct.unpack(">II", head[16:]) == (3 * int(tree.get("width")), 3 * int(tree.get("height")))


def test_the_pdf_has_a_page_of_its_own_size_for_each_chart(folder: Path) -> None:
    pdf = (folder / "figures.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    boxes = [tuple(map(float, found.split())) for found in re.findall(rb"/MediaBox \[([^\]]*)\]", pdf)]
    points = 72 / 96
    heights = [
        int(ElementTree.fromstring((folder / f"{name}.svg").read_text("utf-8")).get("height"))
        for name in ("loss", "loss-minutes", "memory", "memory-2")
    ]
    assert [box[2] for box in boxes] == pytest.approx([720 * points] * 4, abs=1)
    assert [box[3] for box in boxes] == pytest.approx([height * points for height in heights], abs=1)


def test_a_page_without_charts_is_refused(chromium: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="'run' has no charts"):
        export_figures("run", [element("p", "nothing yet")], tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_a_folder_that_cannot_be_made_is_refused(chromium: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RunError, match="can't be written to"):
        export_figures("run", some_parts(), tmp_path / "file")


def test_without_a_browser_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(BROWSER, raising=False)
    monkeypatch.setattr("seqfit.reporting.export_figures._ON_MACS", str(tmp_path / "none"))
    with pytest.raises(SeqfitError, match=r"no Chromium or Chrome was found\..*apt install chromium"):
        find_browser()


def test_the_browser_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-browser"
    program.write_text("#!/bin/sh\necho no screen here >&2\nexit 1\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(BROWSER, str(program))
    assert find_browser() == str(program)
    with pytest.raises(SeqfitError, match=r"could not draw the charts \(no screen here\)"):
        export_figures("run", some_parts(), tmp_path / "figures")
    monkeypatch.setenv(BROWSER, "no-such-browser")
    with pytest.raises(SeqfitError, match="is 'no-such-browser', which is no program here"):
        find_browser()


def test_a_browser_that_draws_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(BROWSER, "/bin/true")
    with pytest.raises(SeqfitError, match="returned no charts"):
        export_figures("run", some_parts(), tmp_path / "figures")
