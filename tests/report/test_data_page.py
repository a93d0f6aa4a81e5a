from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqfit.data.data_report import DataReport
from seqfit.report.data_page import draw_length_histogram, write_data_page


def test_the_page_says_what_was_found(data_report: DataReport, tmp_path: Path) -> None:
    out = tmp_path / "new" / "data.html"
    assert write_data_page(data_report, out) == out
    page = out.read_text("utf-8")
    for said in ("latin small letter n with tilde", "20,000", "80.0%", "limit 150 cuts 25.0%", "loses &#x27;ñ&#x27;"):
        assert said in page
    assert "… 12 more …" in page
    assert '<span class="token special" title="2">&lt;unk&gt;</span>' in page


def test_nothing_in_the_data_becomes_markup(data_report: DataReport, tmp_path: Path) -> None:
    page = write_data_page(data_report, tmp_path / "data.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "<own>" not in page
    assert page.count("&lt;script&gt;alert(&#x27;row&#x27;)") == 2


def test_bins_beyond_the_limit_are_told_by_colour(data_report: DataReport) -> None:
    lengths = data_report.splits[0].source
    colours = draw_length_histogram(lengths).data[0].marker.color
    beyond = [low for low, colour in zip(lengths.edges, colours, strict=False) if colour == "var(--neutral)"]
    assert beyond == [low for low in lengths.edges[:-1] if low > 150]


def test_a_classifier_has_no_target_lengths(data_report: DataReport, tmp_path: Path) -> None:
    (train,) = data_report.splits
    padding = tuple(replace(waste, target=None) for waste in train.padding)
    report = replace(data_report, splits=(replace(train, target=None, padding=padding),))
    page = write_data_page(report, tmp_path / "data.html").read_text("utf-8")
    assert "train, source" in page
    assert "train, target" not in page


def test_sound_data_have_nothing_to_do(data_report: DataReport, tmp_path: Path) -> None:
    page = write_data_page(replace(data_report, findings=()), tmp_path / "data.html").read_text("utf-8")
    assert "Nothing stands out." in page


def test_a_browser_draws_every_figure(
    data_report: DataReport, tmp_path: Path, open_page: Callable[[Path], str]
) -> None:
    document = open_page(write_data_page(data_report, tmp_path / "data.html"))
    assert document.count('data-drawn="yes"') == 3
