from __future__ import annotations

import json

from seqfit.reporting.charts import (
    SERIES,
    ChartLine,
    byte_ticks,
    draw_lines,
    points_of_each,
    series_colour,
    series_dash,
    smooth,
    thin,
)


def test_the_example_of_the_docstring_holds() -> None:
    assert thin([(1, 4.0), (2, 2.0), (3, 3.0), (4, 1.0)], at_most=2) == [(2, 3.0), (4, 2.0)]


def test_a_long_run_is_thinned_and_keeps_its_last_step() -> None:
    points = thin([(step, 1.0) for step in range(1, 100_001)])
    assert len(points) <= 2000
    assert points[-1] == (100_000, 1.0)


def test_many_lines_share_the_points_of_a_chart() -> None:
    lines = [ChartLine(f"{n}", [(step, 1.0) for step in range(10_000)]) for n in range(10)]
    drawn = draw_lines(lines, x="step")
    assert sum(len(trace.x) for trace in drawn.data) <= 2000
    assert points_of_each(1000) == 50


def test_smoothing_looks_back_only() -> None:
    assert smooth([(1, 4.0), (2, 2.0), (3, 0.0)], window=2) == [(1, 4.0), (2, 3.0), (3, 1.0)]


def test_lines_of_one_group_are_one_entry_of_the_legend() -> None:
    lines = [ChartLine("bf16", [(1, 1.0)], group="bf16") for _ in range(3)]
    drawn = draw_lines([*lines, ChartLine("fp32", [(1, 2.0)])], x="step")
    assert [trace.showlegend for trace in drawn.data] == [True, False, False, True]
    assert drawn.layout.showlegend


def test_a_single_line_needs_no_legend_and_a_single_point_a_marker() -> None:
    drawn = draw_lines([ChartLine("loss", [(1, 1.0)])], x="step")
    assert not drawn.layout.showlegend
    assert drawn.data[0].mode == "lines+markers"


def test_bytes_are_marked_at_powers_of_two_and_written_under_the_pointer() -> None:
    assert byte_ticks(3.3 * 2**30) == [0, 2**30, 2 * 2**30, 3 * 2**30, 4 * 2**30]
    drawn = draw_lines([ChartLine("memory", [(1, 3.3 * 2**30)])], x="step", unit="bytes")
    assert list(drawn.layout.yaxis.ticktext)[:2] == ["0 B", "1.0 GiB"]
    assert list(drawn.data[0].text) == ["3.3 GiB"]


def test_shares_reach_from_none_to_all() -> None:
    drawn = draw_lines([ChartLine("GPU 0", [(0.0, 0.5)])], x="minutes", unit="share")
    assert list(drawn.layout.yaxis.range) == [0, 1.02]
    assert drawn.layout.xaxis.title.text == "minutes"


def test_ways_beyond_the_palette_have_other_dashes() -> None:
    looks = {(series_colour(n), series_dash(n)) for n in range(3 * SERIES)}
    assert len(looks) == 3 * SERIES


def test_every_colour_is_the_pages_own() -> None:
    drawn = draw_lines(
        [ChartLine("a", [(1, 1.0)], series_colour(0)), ChartLine("b", [(1, 1.0)], is_quiet=True)], x="step"
    )
    assert "#" not in json.dumps(json.loads(drawn.to_json(engine="json")))
