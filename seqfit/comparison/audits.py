"""What an audit consists of: items with their facts, and findings. Plain values; no torch, and nothing is read here.

    item "fp16"   facts     rows_per_update: 128      precision: fp16      updates: 40      learning_rate: 1e-05
                  figures   seconds 69, memory_bytes 5.47e9                scores: accuracy 78 of 100 rows

A finding names what was not equal, in which items, why that matters, by how much, and what to change:

    level      unequal   items differ in something that they are not named after: the comparison is not fair
               weak      equal for all, but it limits what the comparison can show (100 test rows, one seed)
               unknown   an item does not say it, so that nobody can know whether it was equal
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["unequal", "weak", "unknown"]
ItemKind = Literal["run", "recipe", "script", "row"]  # row: of a published table
Affected = Literal["scores", "time", "memory"]
LEVELS: tuple[Level, ...] = ("unequal", "weak", "unknown")


@dataclass(frozen=True)
class Fact:
    """One setting of an item: values are compared, texts are shown."""

    value: Any
    text: str
    place: str = ""  # where it stands: 'line 12', 'train.batch_examples', 'measured'


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
class Finding:
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
    findings: tuple[Finding, ...]
    equal: tuple[str, ...]  # labels of the aspects that all items have, and that are equal
    intended: Mapping[str, Mapping[str, str]]  # label of an aspect that differs as it is meant to -> item -> value
    verdict: str  # one sentence

    @property
    def is_fair(self) -> bool:
        """Nothing was unequal besides what was meant, and nothing that was compared is unknown."""
        return not any(finding.level in ("unequal", "unknown") for finding in self.findings)

    def of_level(self, level: Level) -> Sequence[Finding]:
        return [finding for finding in self.findings if finding.level == level]
