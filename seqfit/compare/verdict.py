"""A comparison in one sentence: who is smallest, who is fastest, what that costs, and what is no better than noise.

In: a `Comparison`. Out: the sentence.

    recompute takes 38% less memory for 21% more time; nothing is better than vanilla in time beyond noise.

Only what is beyond noise is called less or more. Where one round leaves noise unknown, the sentence says so first.
Predictions have no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqfit.compare.quantities import STEP_SECONDS, choose_memory, choose_score, find_quantity
from seqfit.compare.records import Comparison, Figure, Standing

_WORTH_TELLING = 0.01  # of a change whose noise is unknown


@dataclass(frozen=True)
class _Way:
    """An entrant by the changes that count; 0 is within noise, None not measured."""

    name: str
    time: float | None
    memory: float | None
    score: float | None
    score_name: str
    score_is_known: bool  # whether it is more than noise


def say_verdict(comparison: Comparison) -> str:
    """One sentence, also of a comparison that has only begun."""
    reference, *others = comparison.standings
    name = reference.entrant.name
    broken = [f"{one.entrant.name} runs out of memory" for one in comparison.standings if one.state == "out_of_memory"]
    broken += [f"{one.entrant.name} fails" for one in comparison.standings if one.state == "failed"]
    if not reference.figures:
        return _join_clauses([*broken, f"{name} has no figures yet, so nothing can be compared with it"])
    measured = [one for one in others if one.figures and one.entrant.kind != "different"]
    if not measured:
        return _join_clauses([*broken, _say_others([one.entrant.name for one in others if one.figures], name)])
    memory = choose_memory(one.figures for one in comparison.standings)
    ways = [_weigh(one, reference, memory) for one in measured]
    times = [one.figures[STEP_SECONDS] for one in measured if STEP_SECONDS in one.figures]
    is_known = any(figure.within_noise is not None for figure in times)
    best = _find_best(ways)
    told = [] if is_known else ["one round says nothing about noise"]
    rest = _say_rest(ways, best, name, " beyond noise" if is_known else "")
    return _join_clauses([*told, *map(_say_way, best), *rest, *broken])


def _weigh(standing: Standing, reference: Standing, memory: str | None) -> _Way:
    score = choose_score([name for name in standing.figures if name in reference.figures])
    lossy = " (lossy)" if standing.entrant.kind == "lossy" else ""

    def change(name: str | None) -> float | None:
        return None if name is None else _find_change(standing.figures.get(name))

    label = "" if score is None else find_quantity(score).label
    is_known = score is not None and standing.figures[score].within_noise is not None
    return _Way(f"{standing.entrant.name}{lossy}", change(STEP_SECONDS), change(memory), change(score), label, is_known)


def _say_others(different: Sequence[str], reference: str) -> str:
    """Of a comparison without another way to the same answer."""
    if not different:
        return f"only {reference} has been measured so far"
    are = "is another recipe" if len(different) == 1 else "are other recipes"
    return f"{_join(different)} {are}, whose time and memory are not weighed against {reference}'s"


def _find_change(figure: Figure | None) -> float | None:
    if figure is None or figure.change is None:
        return None
    if figure.within_noise is None:
        return figure.change if abs(figure.change) >= _WORTH_TELLING else 0.0
    return 0.0 if figure.within_noise else figure.change


def _find_best(ways: Sequence[_Way]) -> list[_Way]:
    """The one that takes least memory and the one that takes least time, where that is less than the reference."""
    smallest = min(ways, key=lambda way: (way.memory or 0.0, way.time or 0.0))
    fastest = min(ways, key=lambda way: (way.time or 0.0, way.memory or 0.0))
    best = [smallest] if (smallest.memory or 0.0) < 0 else []
    return [*best, *([fastest] if (fastest.time or 0.0) < 0 and fastest not in best else [])]


def _say_way(way: _Way) -> str:
    amounts = [(way.memory, "memory"), (way.time, "time")]
    less = [f"{-change:.0%} less {what}" for change, what in amounts if change is not None and change < 0]
    more = [f"{change:.0%} more {what}" for change, what in amounts if change is not None and change > 0]
    same = [what for change, what in amounts if change == 0]
    text = f"{way.name} takes {' and '.join(less)}"
    text += f" for {' and '.join(more)}" if more else ""
    text += f" at the same {' and '.join(same)}" if same else ""
    if not way.score:
        return text
    unsure = "" if way.score_is_known else " (too few seeds to tell it from noise)"
    return f"{text}, with {abs(way.score):.1%} {_direction(way.score)} {way.score_name}{unsure}"


def _direction(change: float) -> str:
    return "higher" if change > 0 else "lower"


def _say_rest(ways: Sequence[_Way], best: Sequence[_Way], reference: str, how_sure: str) -> list[str]:
    """Who else is better than the reference, and in what nothing is."""
    clauses, without = [], []
    for what in ("time", "memory"):
        changes = [(way, getattr(way, what)) for way in ways if getattr(way, what) is not None]
        better = [way for way, change in changes if change < 0]
        others = [way.name for way in better if way not in best]
        if others:
            clauses.append(f"{_join(others)} {'takes' if len(others) == 1 else 'take'} less {what}, too")
        if changes and not better:
            without.append(what)
    if without:
        clauses.append(f"nothing is better than {reference} in {' or '.join(without)}{how_sure}")
    return clauses


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _join_clauses(clauses: Sequence[str]) -> str:
    """One sentence. A name keeps its first letter; our own words begin with a capital."""
    text = "; ".join(clauses)
    is_ours = text.startswith(("nothing is", "one round", "only "))
    return f"{text[0].upper()}{text[1:]}." if is_ours else f"{text}."
