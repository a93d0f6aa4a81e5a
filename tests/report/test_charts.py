from __future__ import annotations

import json
import math

from seqfit.report.charts import (
    byte_ticks,
    draw_bars,
    draw_histogram,
    draw_loss,
    draw_scores,
    draw_series,
    draw_timeline,
    smooth,
    thin,
)


def test_the_example_of_the_docstring_holds() -> None:
    assert thin([1, 2, 3, 4], [4.0, 2.0, 3.0, 1.0], at_most=2) == ([2, 4], [3.0, 2.0])


def test_a_long_run_is_thinned_and_keeps_its_last_step() -> None:
    steps, values = thin(range(1, 100_001), [1.0] * 100_000)
    assert len(steps) <= 1000
    assert steps[-1] == 100_000
    assert set(values) == {1.0}


def test_smoothing_looks_back_only() -> None:
    assert smooth([4.0, 2.0, 0.0], window=2) == [4.0, 3.0, 1.0]


def test_a_short_loss_curve_is_drawn_as_it_is() -> None:
    figure = draw_loss({1: 3.0, 2: 2.0}, {"validation": {0: 4.0}})
    assert [trace.name for trace in figure.data] == ["train", "validation"]
    assert list(figure.data[0].y) == [3.0, 2.0]


def test_a_long_loss_curve_shows_the_records_and_their_mean() -> None:
    figure = draw_loss({step: math.exp(-step / 50) for step in range(200)}, {})
    assert [trace.name for trace in figure.data] == ["train, each record", "train, smoothed"]


def test_the_first_score_has_the_accent() -> None:
    figure = draw_scores({"f1": {0: 1.0}, "em": {0: 0.0}})
    assert [trace.line.color for trace in figure.data] == ["var(--accent)", "var(--neutral)"]
    assert len({trace.line.dash for trace in figure.data}) == 2


def test_scores_that_are_all_zero_stand_on_the_axis() -> None:
    assert list(draw_scores({"f1": {0: 0.0, 8: 0.0}}).layout.yaxis.range) == [0, 1]


def test_bytes_are_marked_at_powers_of_two() -> None:
    assert byte_ticks(3.3 * 2**30) == [0, 2**30, 2 * 2**30, 3 * 2**30, 4 * 2**30]
    axis = draw_series("memory", {1: 3.3 * 2**30}, bytes_axis=True).layout.yaxis
    assert list(axis.ticktext)[:2] == ["0 B", "1.0 GiB"]


def test_a_timeline_has_a_line_for_each_and_its_own_unit() -> None:
    shares = draw_timeline({"GPU 0": {0.0: 0.5, 1.0: 0.97}, "GPU 1": {0.0: 0.0}}, "share")
    assert [trace.line.color for trace in shares.data] == ["var(--accent)", "var(--neutral)"]
    assert list(shares.data[0].text) == ["50.0%", "97.0%"]
    assert list(shares.layout.yaxis.range) == [0, 1]
    memory = draw_timeline({"run": {0.0: 3.3 * 2**30}}, "bytes")
    assert list(memory.layout.yaxis.ticktext)[:2] == ["0 B", "1.0 GiB"]
    assert memory.layout.xaxis.title.text == "minutes"


def test_bins_beyond_the_limit_are_neutral() -> None:
    figure = draw_histogram(["0–9", "10–19", "20+"], [0.5, 0.3, 0.2], limit_bin=1)
    assert list(figure.data[0].marker.color) == ["var(--accent)", "var(--accent)", "var(--neutral)"]


def test_bars_lie_with_the_first_on_top() -> None:
    figure = draw_bars({"max_length": 4.0, "ragged": 1.0}, highlight="ragged")
    assert list(figure.data[0].y) == ["ragged", "max_length"]
    assert list(figure.data[0].marker.color) == ["var(--accent)", "var(--neutral)"]


def test_every_colour_is_the_pages_own() -> None:
    drawn = draw_loss(dict.fromkeys(range(100), 1.0), {"validation": {0: 1.0}})
    text = json.dumps(json.loads(drawn.to_json(engine="json")))
    assert "#" not in text
