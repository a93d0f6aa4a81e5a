"""The tables of the benchmark: the result of every try, and what fewer repeats or other rules would have found.

In: the times of all steps of all tries. Out: Markdown.

    try 1   baseline  .100 .101 ...     again +0.3% (-1.2% to +1.8%), not significant     right
            slowed    .105 .106 ...     slowed +5.1% (+3.5% to +6.7%), significant        found
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqfit.comparison.quantities import find_quantity
from seqfit.comparison.statistics import RelativeChange, compare_steps, find_change, pool_scatter, sharpen
from seqfit.units import format_seconds, format_share

CANDIDATES = ("baseline", "again", "slowed")
CLOCKS = ("wall", "calibrated")
MUST = 0.9  # of the tries
Seconds = Mapping[int, float]  # by step
Trials = Mapping[str, Sequence[Seconds]]  # by candidate and repeat
_FLOOR = find_quantity("step_seconds").floor


@dataclass(frozen=True)
class Try:
    """One comparison: the times of its steps after warm-up, by candidate and repeat."""

    steps: int
    seconds: float  # of all of it
    load: float  # of the machine before it
    wall: Trials
    calibrated: Trials  # the same steps by the calibrated clock; none without calibration

    def first(self, repeats: int) -> Try:
        """Only its first repeats."""
        clocks = {clock: {name: found[:repeats] for name, found in getattr(self, clock).items()} for clock in CLOCKS}
        return replace(self, **clocks)


@dataclass(frozen=True)
class Rule:
    """A rule to decide what is significant."""

    name: str
    compare: Callable[[Seconds, Seconds], float]  # the value of a pair
    is_calibrated: bool = True
    is_pooled: bool = True
    floor: float = _FLOOR

    def apply(self, one: Try) -> dict[str, RelativeChange]:
        """`again` and `slowed`, each against the baseline of the same repeats."""
        wall = self._apply_clock(one.wall)
        is_read = self.is_calibrated and all(all(repeats) for repeats in one.calibrated.values())
        calibrated = self._apply_clock(one.calibrated) if is_read else {}
        changes = {name: sharpen(change, calibrated.get(name)) for name, change in wall.items()}
        return {name: change for name, change in changes.items() if change is not None}

    def _apply_clock(self, trials: Trials) -> dict[str, RelativeChange | None]:
        values = {
            name: [self.compare(*pair) for pair in zip(trials[name], trials["baseline"], strict=True)]
            for name in CANDIDATES[1:]
        }
        pooled = pool_scatter(values.values()) if self.is_pooled else None
        return {name: find_change(found, self.floor, pooled) for name, found in values.items()}


def _median_of_ratios(ours: Seconds, theirs: Seconds) -> float:
    value = compare_steps(ours, theirs)
    assert value is not None
    return value


def _ratio_of(number: Callable[[Sequence[float]], float]) -> Callable[[Seconds, Seconds], float]:
    """Each trial by one number of its own, whatever happened at the same step of the other."""
    return lambda ours, theirs: math.log(number([*ours.values()]) / number([*theirs.values()]))


def _lower_quartile(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds)[0]


RULES = (
    Rule(
        "**as it is**: median over steps of the ratio, calibrated, pooled deviation, floor of 2.5%", _median_of_ratios
    ),
    Rule("wall clock alone", _median_of_ratios, is_calibrated=False),
    Rule("each candidate's own deviation", _median_of_ratios, is_pooled=False),
    Rule("no floor", _median_of_ratios, floor=0.0),
    Rule("wall clock alone, ratio of the trials' median steps", _ratio_of(statistics.median), is_calibrated=False),
    Rule("wall clock alone, ratio of the trials' totals", _ratio_of(sum), is_calibrated=False),
    Rule("wall clock alone, ratio of the trials' lower quartiles", _ratio_of(_lower_quartile), is_calibrated=False),
)


def read_tries(path: Path) -> list[Try]:
    """What was measured; JSON has text for the numbers of steps. Earlier tries have a clock that is no longer used."""
    tries = []
    for line in path.read_text("utf-8").splitlines():
        values: dict[str, Any] = json.loads(line)
        values.pop("undisturbed", None)
        for clock in CLOCKS:
            values[clock] = {
                name: [{int(step): seconds for step, seconds in one.items()} for one in repeats]
                for name, repeats in values[clock].items()
            }
        tries.append(Try(**values))
    return tries


def find_changes(one: Try) -> dict[str, RelativeChange]:
    """As seqfit does."""
    return RULES[0].apply(one)


def format_result(change: RelativeChange) -> str:
    """'+4.9% (+3.1% to +6.8%), significant'."""
    low, high = change.low or 0.0, change.high or 0.0
    verdict = "significant" if change.is_significant else "not significant"
    return f"{change.change:+.1%} ({low:+.1%} to {high:+.1%}), {verdict}"


def format_tables(tries: Sequence[Try]) -> str:
    """Every try, how often each was right, what fewer repeats and other rules would have found."""
    repeats = len(tries[0].wall["baseline"])
    fewer = {f"the first {count}": ([one.first(count) for one in tries], RULES[0]) for count in range(2, repeats + 1)}
    others = {rule.name: (tries, rule) for rule in RULES}
    parts = [_list_tries(tries), _sum_up(tries, repeats), _count("repeats used", fewer)]
    return "\n\n".join([*parts, _count(f"rule, with {repeats} repeats", others)])


def _list_tries(tries: Sequence[Try]) -> str:
    rows = ["| try | again | slowed by 5% | took |", "|---|---|---|---|"]
    for number, one in enumerate(tries, 1):
        changes, took = find_changes(one), format_seconds(one.seconds)
        rows.append(f"| {number} | {format_result(changes['again'])} | {format_result(changes['slowed'])} | {took} |")
    return "\n".join(rows)


def _sum_up(tries: Sequence[Try], repeats: int) -> str:
    same, found, _ = _count_right(tries, RULES[0])
    words = ["reached" if count >= MUST * len(tries) else "**not reached**" for count in (same, found)]
    steps = [seconds for one in tries for trial in one.wall["baseline"] for seconds in trial.values()]
    loads = [one.load for one in tries]
    return (
        f"`again` is not significant in {same} of {len(tries)} tries ({words[0]}), `slowed` is found in {found} "
        f"({words[1]}). {repeats} repeats per try, {tries[0].steps} steps per trial, of which the median takes "
        f"{format_seconds(statistics.median(steps))}; {format_seconds(sum(one.seconds for one in tries))} in all. Load "
        f"of the machine before a try: {min(loads):.1f} to {max(loads):.1f}."
    )


def _count(head: str, rules: Mapping[str, tuple[Sequence[Try], Rule]]) -> str:
    rows = [f"| {head} | again not significant | slowed found | half-width of the interval |", "|---|---|---|---|"]
    for name, (tries, rule) in rules.items():
        same, found, half = _count_right(tries, rule)
        rows.append(f"| {name} | {same} of {len(tries)} | {found} of {len(tries)} | {format_share(half)} |")
    return "\n".join(rows)


def _count_right(tries: Sequence[Try], rule: Rule) -> tuple[int, int, float]:
    """How often `again` was not significant and `slowed` was, and half of the median interval."""
    changed = [rule.apply(one) for one in tries]
    same = sum(changes["again"].is_significant is False for changes in changed)
    found = sum(changes["slowed"].is_significant is True for changes in changed)
    widths = [(one.high or 0.0) - (one.low or 0.0) for changes in changed for one in changes.values()]
    return same, found, statistics.median(widths) / 2
