"""Compares the facts of items, aspect by aspect: what is equal, what differs as meant, and what should not differ.

inverted    those named after a technique lack it, and all others use it
unused      an item is named after a technique and does not use it
unequal     an item differs from the baseline in something that it is not named after
unknown     a script does not say it, and others do
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqfit.comparison.aspects import ASPECTS, Aspect
from seqfit.comparison.audits import (
    MEASURED,
    ONE_COPY,
    PER_GPU,
    PLANNED,
    UNREAD,
    Affected,
    AuditFinding,
    AuditItem,
    Fact,
    join_names,
    join_words,
    label_of,
)
from seqfit.comparison.script_facts import ALWAYS_STATED, STATED_BY
from seqfit.units import format_seconds

_CAUSES_OF_TOKENS = {"data", "text", "lengths", "model", "seed", "trained_part", "test_data"}
_NAMES_OFF = {"precision": r"(?<!\d)(fp|tf|f)?32", "optimizer": "adam"}  # an item may be named after the usual value
_COST: tuple[Affected, ...] = ("time", "memory")


@dataclass
class FactComparison:
    findings: list[AuditFinding] = field(default_factory=list)
    equal: list[str] = field(default_factory=list)
    intended: dict[str, Mapping[str, str]] = field(default_factory=dict)
    not_stated: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Values:
    """What the items have of one aspect."""

    aspect: Aspect
    keys: Mapping[str, str]  # item -> value, to be compared
    texts: Mapping[str, str]
    raw: Mapping[str, Any]
    has_one_copy: bool

    @property
    def is_equal(self) -> bool:
        return len(set(self.keys.values())) == 1

    def describe(self) -> str:
        """'4 in baseline and fp16; 1 in all'."""
        groups: dict[str, list[str]] = {}
        for name, key in self.keys.items():
            groups.setdefault(key, []).append(name)
        return "; ".join(f"{self.texts[names[0]]} in {join_names(names)}" for names in groups.values())

    def is_off(self, name: str) -> bool:
        return bool(self.raw[name] == self.aspect.without)


def compare_facts(
    items: Sequence[AuditItem],
    baseline: AuditItem,
    intended_by: Mapping[str, set[str]],
    named: Mapping[str, set[str]] | None,
) -> FactComparison:
    """`intended_by`: item -> aspects in which it may differ; `named`: those of its name, None where they were given."""
    found = FactComparison()
    differing: set[str] = set()
    missing: dict[tuple[str, ...], list[Aspect]] = {}
    for aspect in ASPECTS:
        values = _collect(aspect, items)
        lacking = tuple(item.name for item in items if _lacks(item, aspect, values))
        if not values.keys and aspect.name in set(STATED_BY) - set(ALWAYS_STATED):
            found.not_stated += [aspect.label] if lacking else []
        elif lacking and (values.keys or aspect.name in ALWAYS_STATED):
            missing.setdefault(lacking, []).append(aspect)
        if aspect.name == "tokenized" and differing & _CAUSES_OF_TOKENS:
            continue
        if aspect.name == "software" and "program" in differing:
            continue
        if len(values.keys) > 1 and not values.is_equal:
            differing.add(aspect.name)
        _judge(values, items, baseline, intended_by, named, found)
    found.findings += [_report_unknown(names, aspects) for names, aspects in missing.items()]
    return found


def _collect(aspect: Aspect, items: Sequence[AuditItem]) -> _Values:
    known = {item.name: item.facts[aspect.name] for item in items if aspect.name in item.facts}
    if any(item.kind == "run" for item in items):
        known = {name: fact for name, fact in known.items() if fact.place != PLANNED}
    unread = {name: fact for name, fact in known.items() if fact.place == UNREAD}
    if len(unread) < len(items) or len({str(fact.value) for fact in unread.values()}) > 1:
        known = {name: fact for name, fact in known.items() if name not in unread}
    keys = {name: _key_of(fact.value) for name, fact in known.items()}
    by_text: dict[str, set[str]] = {}
    for name, fact in known.items():
        by_text.setdefault(fact.text, set()).add(keys[name])
    texts: dict[str, str] = {}
    for name, fact in known.items():  # of one value one text: a plan and a record may say it differently
        same = next((texts[other] for other in texts if keys[other] == keys[name]), None)
        texts[name] = same or (_distinguish(fact) if len(by_text[fact.text]) > 1 else fact.text)
    return _Values(
        aspect,
        keys,
        texts,
        {name: fact.value for name, fact in known.items()},
        any(fact.place == ONE_COPY for fact in known.values()),
    )


def _key_of(value: Any) -> str:
    """2 epochs and 2.0 epochs are the same."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{float(value):.12g}"
    return json.dumps(value, sort_keys=True, default=str)


def _distinguish(fact: Fact) -> str:
    """Where another value has the same text."""
    return (
        f"{fact.text} ({fact.place})"
        if fact.place not in ("", MEASURED, PLANNED, PER_GPU, ONE_COPY)
        else f"{fact.text} ({fact.value})"
    )


def _lacks(item: AuditItem, aspect: Aspect, values: _Values) -> bool:
    """A recipe leaves open what is planned, and that never changes what is learnt."""
    if item.kind not in ("script", "row") or (aspect.name not in STATED_BY and aspect.name != "gpus"):
        return False
    fact = item.facts.get(aspect.name)
    if fact is not None and fact.place == PER_GPU:  # each GPU multiplies it, but not that of one copy of the model
        return values.has_one_copy
    return item.name not in values.keys


def _judge(
    values: _Values,
    items: Sequence[AuditItem],
    baseline: AuditItem,
    intended_by: Mapping[str, set[str]],
    named: Mapping[str, set[str]] | None,
    found: FactComparison,
) -> None:
    aspect = values.aspect
    if len(values.keys) < 2:
        return
    users = [name for name in values.keys if named is not None and aspect.name in named[name]]
    unused = [name for name in users if _is_unused(values, name)]
    others = [name for name in values.keys if name not in users]
    if unused and unused == users and others and not any(values.is_off(name) for name in others):
        found.findings.append(_report_inverted(values, unused, others))
        return
    if unused:
        found.findings.append(_report_unused(values, unused))
    if values.is_equal:
        found.equal += [] if unused else [aspect.label]
        return
    usual = values.keys.get(baseline.name, next(iter(values.keys.values())))
    stray = [name for name, key in values.keys.items() if key != usual and aspect.name not in intended_by[name]]
    if aspect.name in intended_by[baseline.name] and baseline.name in values.keys:
        rest = {values.keys[name] for name in values.keys if name != baseline.name}
        stray = [] if len(rest) == 1 else stray  # the baseline itself is what differs, and is named after it
    if stray:
        found.findings.append(_report_unequal(values, stray, items))
    elif not unused:
        found.intended[aspect.label] = dict(values.texts)


def _is_unused(values: _Values, name: str) -> bool:
    pattern = _NAMES_OFF.get(values.aspect.name)
    names_it = pattern is not None and re.search(pattern, name.lower()) is not None
    return values.aspect.without is not None and values.is_off(name) and not names_it


def _report_inverted(values: _Values, users: Sequence[str], others: Sequence[str]) -> AuditFinding:
    aspect = values.aspect
    short = label_of(aspect.label)
    what = (
        f"{short} is inverted: {join_names(users)}, named after it, {'has' if len(users) == 1 else 'have'} "
        f"{values.texts[users[0]]}, and {join_names(others)} {_describe_values(values, others)}"
    )
    found = _build(values, users, what, is_inverted=True)
    return replace(found, change=f"swap the values and measure again; {aspect.change}")


def _describe_values(values: _Values, names: Sequence[str]) -> str:
    return "/".join(dict.fromkeys(values.texts[name] for name in names))


def _report_unused(values: _Values, users: Sequence[str]) -> AuditFinding:
    short = label_of(values.aspect.label)
    verb = "is" if len(users) == 1 else "are"
    what = f"{join_names(users)} {verb} named after {short} and {'does' if len(users) == 1 else 'do'} not use it"
    return _build(values, users, f"{what}: {_describe_values(values, users)}")


def _report_unequal(values: _Values, stray: Sequence[str], items: Sequence[AuditItem]) -> AuditFinding:
    short = label_of(values.aspect.label)
    affects = values.aspect.affects
    rows = [item.facts["rows_per_update"].value for item in items if "rows_per_update" in item.facts]
    if values.aspect.name == "accumulation" and len(set(map(str, rows))) == 1:
        affects = _COST  # the same rows in each update: only their pieces differ
    return _build(values, stray, f"{short}: {values.describe()}", affects, _measure(values, items))


def _build(
    values: _Values,
    names: Sequence[str],
    what: str,
    affects: Sequence[Affected] = (),
    by: str = "",
    *,
    is_inverted: bool = False,
) -> AuditFinding:
    aspect = values.aspect
    return AuditFinding(
        aspect=aspect.name,
        label=aspect.label,
        level="unequal",
        what=what,
        values=dict(values.texts),
        items=tuple(names),
        why=aspect.why,
        by=by or _ratio(values),
        change=aspect.change,
        affects=tuple(affects or aspect.affects),
        is_inverted=is_inverted,
    )


def _ratio(values: _Values) -> str:
    numbers = [value for value in values.raw.values() if isinstance(value, int | float) and not isinstance(value, bool)]
    if (
        len(numbers) < len(values.raw)
        or min(numbers) <= 0
        or min(numbers) == max(numbers)
        or values.aspect.name == "seed"
    ):
        return ""
    what = "high" if values.aspect.name == "learning_rate" else "many"
    return f"{max(numbers) / min(numbers):.3g} times as {what}"


def _measure(values: _Values, items: Sequence[AuditItem]) -> str:
    """Of updates also the time of each, which is what was compared unnoticed."""
    by = _ratio(values)
    if values.aspect.name != "updates":
        return by
    each = {
        item.name: item.figures["seconds"] / values.raw[item.name]
        for item in items
        if "seconds" in item.figures and isinstance(values.raw.get(item.name), int)
    }
    if len(each) < 2:
        return by
    shown = "; ".join(f"{name} {format_seconds(seconds, precise=True)}" for name, seconds in each.items())
    return f"{by}; time per update: {shown}" if by else f"time per update: {shown}"


def _report_unknown(names: Sequence[str], aspects: Sequence[Aspect]) -> AuditFinding:
    labels = [label_of(aspect.label) for aspect in aspects]
    return AuditFinding(
        aspect="unknown",
        label=f"{join_words(labels)} of {join_names(names)}",
        level="unknown",
        what=f"{join_names(names)}: {join_words(labels)} {'is' if len(labels) == 1 else 'are'} not stated",
        values=dict.fromkeys(names, "not known"),
        items=tuple(names),
        why="what is not stated, or is known only when the script runs, may be unequal, and nobody would notice",
        by="",
        change="write it as a constant, give the command line with its arguments in quotes, or state it in the table",
        affects=tuple(dict.fromkeys(one for aspect in aspects for one in aspect.affects)),
    )
