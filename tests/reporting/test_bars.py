from __future__ import annotations

import pytest

from seqfit.reporting.charts import bars_height, draw_bars, draw_histogram, draw_stacks
from seqfit.units import format_seconds


def test_bins_beyond_the_limit_are_neutral() -> None:
    figure = draw_histogram(["0–9", "10–19", "20+"], [0.5, 0.3, 0.2], limit_bin=1)
    assert list(figure.data[0].marker.color) == ["var(--accent)", "var(--accent)", "var(--neutral)"]


def test_bars_lie_with_the_first_on_top() -> None:
    figure = draw_bars({"max_length": 4.0, "packed": 1.0}, highlight="packed")
    assert list(figure.data[0].y) == ["packed", "max_length"]
    assert list(figure.data[0].marker.color) == ["var(--accent)", "var(--neutral)"]


def test_a_stack_ends_in_its_sum() -> None:
    stacks = {"baseline": {"forward": 1.0, "backward": 2.0}, "bf16": {"forward": 0.6}}
    drawn = draw_stacks(stacks, say=format_seconds)
    forward, backward, sums = drawn.data
    assert list(forward.x) == [0.6, 1.0]  # the first on top, so last in the list
    assert list(backward.x) == [0.0, 2.0]
    assert [text.strip() for text in sums.text] == ["600 ms", "3.0 s"]
    assert drawn.layout.barmode == "stack"


def test_what_is_predicted_as_a_whole_is_hollow_and_what_is_measured_is_plain() -> None:
    drawn = draw_stacks(
        {"a": {"weights": 1.0, "whole": 2.0, "measured": 3.0}}, say=str, plain=["measured"], hollow=["whole"]
    )
    weights, whole, measured, _ = drawn.data
    assert weights.marker.color == "var(--series-1)"
    assert whole.marker.color == "rgba(0,0,0,0)"
    assert whole.marker.line.width > 0
    assert measured.marker.color == "var(--neutral)"


def test_no_bars_are_no_mistake() -> None:
    assert draw_stacks({}, say=str).data[0].x == ()


@pytest.mark.parametrize("count", [1, 5, 50])
def test_more_bars_need_more_room(count: int) -> None:
    assert bars_height(count + 5) > bars_height(count)
