"""The tables of the benchmark: how every try was judged, and how fewer rounds or other rules would have judged it.

In: the times of all steps of all tries. Out: Markdown.

    try 1   baseline  .100 .101 ...     again +0.3% (-1.2% to +1.8%), within noise     right
            slowed   .105 .106 ...     slowed +5.1% (+3.5% to +6.7%), beyond noise    found
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
from seqfit.comparison.statistics import RelativeChange, compare_steps, judge_pairs, pool_scatter, sharpen
from seqfit.units import format_seconds, format_share

ENTRANTS = ("baseline", "again", "slowed")
CLOCKS = ("wall", "yardsticks")
MUST = 0.9  # of the tries
Seconds = Mapping[int, float]  # by step
Trials = Mapping[str, Sequence[Seconds]]  # by entrant and round
_FLOOR = find_quantity("step_seconds").floor


@dataclass(frozen=True)
class Try:
    """One tournament: the times of its steps after warm-up, by entrant and round."""

    steps: int
    seconds: float  # of all of it
    load: float  # of the machine before it
    wall: Trials
    yardsticks: Trials  # the same steps by the calibrated clock; none where it was not read

    def first(self, rounds: int) -> Try:
        """Only its first rounds."""
        clocks = {clock: {name: found[:rounds] for name, found in getattr(self, clock).items()} for clock in CLOCKS}
        return replace(self, **clocks)


@dataclass(frozen=True)
class Rule:
    """A way to judge the same trials."""

    name: str
    compare: Callable[[Seconds, Seconds], float]  # the value of a pair
    is_calibrated: bool = True
    is_pooled: bool = True
    floor: float = _FLOOR

    def judge(self, one: Try) -> dict[str, RelativeChange]:
        """`again` and `slowed`, each against the baseline of the same rounds."""
        wall = self._judge_clock(one.wall)
        is_read = self.is_calibrated and all(all(rounds) for rounds in one.yardsticks.values())
        calibrated = self._judge_clock(one.yardsticks) if is_read else {}
        changes = {name: sharpen(change, calibrated.get(name)) for name, change in wall.items()}
        return {name: change for name, change in changes.items() if change is not None}

    def _judge_clock(self, trials: Trials) -> dict[str, RelativeChange | None]:
        values = {
            name: [self.compare(*pair) for pair in zip(trials[name], trials["baseline"], strict=True)]
            for name in ENTRANTS[1:]
        }
        pooled = pool_scatter(values.values()) if self.is_pooled else None
        return {name: judge_pairs(found, self.floor, pooled) for name, found in values.items()}


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
    Rule("**as it is**: median over steps of the ratio, calibrated, pooled scatter, floor of 2.5%", _median_of_ratios),
    Rule("wall clock alone", _median_of_ratios, is_calibrated=False),
    Rule("each entrant's own scatter", _median_of_ratios, is_pooled=False),
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
                name: [{int(step): seconds for step, seconds in one.items()} for one in rounds]
                for name, rounds in values[clock].items()
            }
        tries.append(Try(**values))
    return tries


def judge(one: Try) -> dict[str, RelativeChange]:
    """As seqfit does."""
    return RULES[0].judge(one)


def say(change: RelativeChange) -> str:
    """'+4.9% (+3.1% to +6.8%), significant'."""
    low, high = change.low or 0.0, change.high or 0.0
    verdict = "not significant" if change.within_noise else "significant"
    return f"{change.change:+.1%} ({low:+.1%} to {high:+.1%}), {verdict}"


def format_tables(tries: Sequence[Try]) -> str:
    """Every try, how often each was right, what fewer rounds and other rules would have said."""
    rounds = len(tries[0].wall["baseline"])
    fewer = {f"the first {count}": ([one.first(count) for one in tries], RULES[0]) for count in range(2, rounds + 1)}
    others = {rule.name: (tries, rule) for rule in RULES}
    parts = [_list_tries(tries), _sum_up(tries, rounds), _count("rounds counted", fewer)]
    return "\n\n".join([*parts, _count(f"rule, with {rounds} rounds", others)])


def _list_tries(tries: Sequence[Try]) -> str:
    rows = ["| try | again | slowed by 5% | took |", "|---|---|---|---|"]
    for number, one in enumerate(tries, 1):
        changes, took = judge(one), format_seconds(one.seconds)
        rows.append(f"| {number} | {say(changes['again'])} | {say(changes['slowed'])} | {took} |")
    return "\n".join(rows)


def _sum_up(tries: Sequence[Try], rounds: int) -> str:
    within, found, _ = _count_right(tries, RULES[0])
    words = ["reached" if count >= MUST * len(tries) else "**not reached**" for count in (within, found)]
    steps = [seconds for one in tries for trial in one.wall["baseline"] for seconds in trial.values()]
    loads = [one.load for one in tries]
    return (
        f"`again` is not significant in {within} of {len(tries)} tries ({words[0]}), `slowed` is found in {found} "
        f"({words[1]}). {rounds} rounds a try, {tries[0].steps} steps a trial, of which the median takes "
        f"{format_seconds(statistics.median(steps))}; {format_seconds(sum(one.seconds for one in tries))} in all. Load "
        f"of the machine before a try: {min(loads):.1f} to {max(loads):.1f}."
    )


def _count(head: str, asked: Mapping[str, tuple[Sequence[Try], Rule]]) -> str:
    rows = [f"| {head} | again not significant | slowed found | half of the interval |", "|---|---|---|---|"]
    for name, (tries, rule) in asked.items():
        within, found, half = _count_right(tries, rule)
        rows.append(f"| {name} | {within} of {len(tries)} | {found} of {len(tries)} | {format_share(half)} |")
    return "\n".join(rows)


def _count_right(tries: Sequence[Try], rule: Rule) -> tuple[int, int, float]:
    """How often `again` was within noise and `slowed` beyond it, and half of the median interval."""
    judged = [rule.judge(one) for one in tries]
    within = sum(changes["again"].within_noise is True for changes in judged)
    found = sum(changes["slowed"].within_noise is False for changes in judged)
    widths = [(one.high or 0.0) - (one.low or 0.0) for changes in judged for one in changes.values()]
    return within, found, statistics.median(widths) / 2
