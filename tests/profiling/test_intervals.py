from __future__ import annotations

from seqfit.profiling.trace import HostSpan, Nesting, gaps, length, merge, overlap, self_times

UNION = [(0, 6), (9, 10)]


def test_touching_and_overlapping_intervals_become_one() -> None:
    assert merge([(2, 6), (9, 10), (0, 4), (5, 5), (6, 6)]) == UNION


def test_union_and_gaps_fill_the_window() -> None:
    free = gaps(UNION, (-2, 12))
    assert free == [(-2, 0), (6, 9), (10, 12)]
    assert length(UNION) + length(free) == 14


def test_a_window_without_intervals_is_one_gap() -> None:
    assert gaps([], (3, 8)) == [(3, 8)]


def test_overlap_counts_only_what_lies_in_the_window() -> None:
    assert [overlap(UNION, window) for window in ((4, 10), (6, 9), (20, 30), (-5, 1))] == [3, 0, 0, 1]


def test_self_time_leaves_out_what_is_inside_but_not_other_threads() -> None:
    outer, inner, deep = HostSpan("o", 0, 100, "1"), HostSpan("i", 10, 50, "1"), HostSpan("d", 20, 5, "1")
    other = HostSpan("x", 10, 50, "2")
    times = {span.name: own for span, own in self_times([deep, other, outer, inner])}
    assert times == {"o": 50, "i": 45, "d": 5, "x": 50}


def test_self_times_add_up_to_the_outermost_length() -> None:
    spans = [HostSpan(str(n), n, 100 - 2 * n, "1") for n in range(20)]
    assert sum(own for _, own in self_times(spans)) == 100


def test_the_innermost_span_is_found_at_each_moment() -> None:
    nesting = Nesting([HostSpan("o", 0, 100, "1"), HostSpan("i", 10, 50, "1"), HostSpan("later", 200, 10, "1")])
    found = [nesting.at("1", moment) for moment in (-1, 0, 10, 59, 60, 99, 100, 205)]
    assert [span.name if span else None for span in found] == [None, "o", "i", "i", "o", "o", None, "later"]
    assert nesting.at("2", 5) is None
