from __future__ import annotations

from seqfit.reporting.charts import Point, draw_points, find_front


def point(name: str, size: float, rate: float, *, is_predicted: bool = False) -> Point:
    return Point(name, size, rate, "var(--series-1)", is_predicted)


def test_the_front_has_what_no_other_beats() -> None:
    points = [point("baseline", 4, 10), point("recompute", 2, 8), point("worse", 4, 7), point("bf16", 3, 14)]
    assert [found.name for found in find_front(points)] == ["recompute", "bf16"]


def test_of_equally_large_ones_the_faster_is_on_the_front() -> None:
    assert [found.name for found in find_front([point("a", 2, 5), point("b", 2, 6)])] == ["b"]


def test_predicted_points_are_hollow_and_never_on_the_front() -> None:
    drawn = draw_points([point("a", 4, 10), point("b", 2, 8), point("c", 1, 99, is_predicted=True)])
    front, *points = drawn.data
    assert list(front.x) == [2, 4]
    assert [found.marker.symbol for found in points] == ["circle", "circle", "circle-open"]
    assert points[2].name == "c, predicted"
    assert [found.mode for found in points] == ["markers+text", "markers+text", "markers"]


def test_many_points_are_named_by_the_legend() -> None:
    drawn = draw_points([point(f"{number}", number + 1, number + 1) for number in range(20)])
    assert drawn.layout.showlegend
    assert {found.mode for found in drawn.data[1:]} == {"markers"}
