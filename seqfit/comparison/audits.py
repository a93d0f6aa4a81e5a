"""What an audit consists of: items with their facts, and findings; and their text, and JSON. Nothing is read here.

    item "fp16"   facts     rows_per_update: 128      precision: fp16      updates: 40      learning_rate: 1e-05
                  figures   seconds 69, memory_bytes 5.47e9                scores: accuracy 78 of 100 rows

A finding names what was not equal, in which items, why that matters, by how much, and what to change:

    level      unequal   items differ in something that they are not named after: the comparison is not fair
               weak      equal for all, but it limits what the comparison can show (100 test rows, one seed)
               unknown   an item does not say it, so that nobody can know whether it was equal

As text, what differs is a table with a row for each value, and findings follow:

    what differs                       value   items
    gradient accumulation   inverted   4       baseline, fp16
                                       1       gradient accumulation
    precision               as meant   fp32    baseline, gradient accumulation
                                       fp16    fp16
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from seqfit.tables import Table, TableColumn, to_rich

Level = Literal["unequal", "weak", "unknown"]
ItemKind = Literal["run", "recipe", "script", "row"]  # row: of a published table
Affected = Literal["scores", "time", "memory"]
MEASURED = "measured"
PER_GPU = "per GPU"  # of a Trainer that takes all GPUs that it sees
ONE_COPY = "one copy"  # of the model, whatever the number of GPUs
UNREAD = "unread"  # a script's expression: equal to itself, and unknown next to anything else
PLANNED = "planned"  # left to the plan: it says nothing about a run
LEVELS: tuple[Level, ...] = ("unequal", "unknown", "weak")  # the gravest first
_SHOWN_NOTES = 4  # per item; the rest is counted
_NARROWEST = 60
_TITLES = {"unequal": "Unequal", "unknown": "Not known", "weak": "Limits"}


@dataclass(frozen=True)
class Fact:
    """One setting of an item: values are compared, texts are shown."""

    value: Any
    text: str
    place: str = ""  # a path that distinguishes equal texts, or how it is known: MEASURED, PLANNED


@dataclass(frozen=True)
class AuditItem:
    name: str
    kind: ItemKind
    source: str = ""  # path, or the table that has the row
    facts: Mapping[str, Fact] = field(default_factory=dict)  # by aspect (aspects.py)
    figures: Mapping[str, float] = field(default_factory=dict)  # seconds, step_seconds, memory_bytes
    scores: Mapping[str, float] = field(default_factory=dict)  # 0 to 100, but for losses
    scored_rows: int | None = None
    memory_is_summed: bool | None = None  # over GPUs; None: not stated
    seeds: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be read, or was assumed
    named_after: frozenset[str] = frozenset()  # aspects
    right_rows: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)  # score -> which rows were right


@dataclass(frozen=True)
class AuditFinding:
    aspect: str  # its key, such as rows_per_update
    label: str  # 'rows per update'
    level: Level
    what: str  # one sentence
    values: Mapping[str, str]  # item -> what it has
    items: tuple[str, ...]  # those that differ from the baseline, or all that are concerned
    why: str  # one sentence
    by: str  # by how much; '' where that can't be computed
    change: str  # what to do about it
    affects: tuple[Affected, ...] = ()
    is_inverted: bool = False  # those named after a technique lack it, and the others have it


@dataclass(frozen=True)
class Audit:
    items: tuple[AuditItem, ...]
    baseline: str
    meant: Mapping[str, tuple[str, ...]]  # item -> labels of the aspects in which it is meant to differ
    is_guessed: bool  # whether `meant` was guessed from names
    findings: tuple[AuditFinding, ...]
    equal: tuple[str, ...]  # labels of the aspects that all items have, and that are equal
    not_stated: tuple[str, ...]  # labels of those that no item states
    intended: Mapping[str, Mapping[str, str]]  # label of an aspect that differs as it is meant to -> item -> value
    verdict: str  # one sentence

    @property
    def unequal(self) -> Sequence[AuditFinding]:
        """One for each aspect: an item may both lack what it is named after and differ from another."""
        first = {finding.aspect: finding for finding in reversed(self.of_level("unequal"))}
        return [finding for finding in self.of_level("unequal") if first[finding.aspect] is finding]

    @property
    def is_fair(self) -> bool:
        """Nothing was unequal besides what was meant, and nothing that was compared is unknown."""
        return not any(finding.level in ("unequal", "unknown") for finding in self.findings)

    def of_level(self, level: Level) -> Sequence[AuditFinding]:
        return [finding for finding in self.findings if finding.level == level]


def format_audit(audit: Audit, width: int) -> str:
    width = max(width, _NARROWEST)
    parts = [_wrap(audit.verdict, width), _wrap(describe_meant(audit), width)]
    table = build_differences(audit)
    if table.rows:
        parts.append(_format_table(table, width))
    for level, title in _TITLES.items():
        found = [one for one in audit.findings if one.level == level]
        if found:
            parts.append("\n\n".join([f"{title}:", *(_format_finding(one, width) for one in found)]))
    if audit.equal:
        parts.append(_wrap(f"Equal ({len(audit.equal)}): {', '.join(label_of(one) for one in audit.equal)}", width))
    if audit.not_stated:
        parts.append(_wrap(f"Not stated by any item: {', '.join(map(label_of, audit.not_stated))}", width))
    parts += [_wrap(note, width, "  ") for note in list_audit_notes(audit)]
    return "\n\n".join(parts)


def describe_meant(audit: Audit) -> str:
    """'baseline: a; meant to differ (guessed from the names): fp16 in precision'."""
    how = "guessed from the names; --meant states it" if audit.is_guessed else "--meant"
    named = [f"{name} in {', '.join(map(label_of, labels))}" for name, labels in audit.meant.items() if labels]
    if not audit.is_guessed:
        named = [", ".join(map(label_of, next(iter(audit.meant.values()))))]
    return f"Baseline: {audit.baseline}. Meant to differ ({how}): {'; '.join(named) or 'nothing'}."


def join_names(names: Sequence[str]) -> str:
    """In quotes where they have spaces: 'gradient accumulation', all and fp16."""
    quoted = [f"'{name}'" if " " in name else name for name in names]
    return join_words(quoted)


def join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def label_of(label: str) -> str:
    """Without what stands in brackets."""
    return label.partition(" (")[0]


def build_differences(audit: Audit) -> Table:
    """One row for each value of what differs, the unequal first."""
    rows: list[tuple[str, str, str, str]] = []
    for finding in audit.unequal:
        rows += _list_values(label_of(finding.label), finding.values, "inverted" if finding.is_inverted else "unequal")
    for label, values in audit.intended.items():
        rows += _list_values(label_of(label), values, "as meant")
    columns = tuple(TableColumn("", label, is_number=False) for label in ("what differs", "", "value", "items"))
    return Table("", columns, tuple(rows))


def _list_values(label: str, values: Mapping[str, str], mark: str) -> Iterator[tuple[str, str, str, str]]:
    groups: dict[str, list[str]] = {}
    for name, text in values.items():
        groups.setdefault(text, []).append(name)
    for number, (text, names) in enumerate(groups.items()):
        yield (label, mark, text, ", ".join(names)) if number == 0 else ("", "", text, ", ".join(names))


def list_audit_notes(audit: Audit) -> list[str]:
    """What was not read or assumed, item by item; the same of all items once."""
    shared = set.intersection(*(set(item.notes) for item in audit.items))
    lines = [f"All items: {_shorten(sorted(shared))}"] if shared else []
    for item in audit.items:
        own = [note for note in item.notes if note not in shared]
        lines += [f"{item.name}: {_shorten(own)}"] if own else []
    return lines


def _shorten(notes: Sequence[str]) -> str:
    more = [f"{len(notes) - _SHOWN_NOTES} more"] if len(notes) > _SHOWN_NOTES else []
    return "; ".join([*notes[:_SHOWN_NOTES], *more])


def _format_finding(finding: AuditFinding, width: int) -> str:
    affects = f" [{', '.join(finding.affects)}]" if finding.affects else ""
    lines = [_wrap(f"- {finding.what}{affects}", width, "  ")]
    parts = {"by how much": finding.by, "why": finding.why, "change": finding.change}
    lines += [_wrap(f"  {name}: {text}", width, "    ") for name, text in parts.items() if text]
    return "\n".join(lines)


def _format_table(table: Table, width: int) -> str:
    from rich.console import Console

    stream, shown = io.StringIO(), to_rich(table)
    for column in shown.columns:
        column.overflow = "fold"  # a path has no spaces
    Console(file=stream, width=width, color_system=None, highlight=False, markup=False).print(shown)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def _wrap(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def dump_audit(audit: Audit) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "verdict": audit.verdict,
        "is_fair": audit.is_fair,
        "baseline": audit.baseline,
        "meant": {name: list(labels) for name, labels in audit.meant.items()},
        "is_guessed": audit.is_guessed,
        "findings": [asdict(finding) for finding in audit.findings],
        "equal": list(audit.equal),
        "not_stated": list(audit.not_stated),
        "intended": {label: dict(values) for label, values in audit.intended.items()},
        "items": [
            {
                "name": item.name,
                "kind": item.kind,
                "source": item.source,
                "facts": {name: {"value": fact.value, "text": fact.text} for name, fact in item.facts.items()},
                "figures": dict(item.figures),
                "scores": dict(item.scores),
                "scored_rows": item.scored_rows,
                "seeds": list(item.seeds),
                "notes": list(item.notes),
            }
            for item in audit.items
        ],
    }
