"""What `describe_data` finds, as frozen values that turn into JSON.

Nothing is computed here. Lengths are in tokens, shares are parts of one, a missing limit is None.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Token lengths of one side of a split, before any cut.

    Bin i holds the lengths from `edges[i]` up to, but not including, `edges[i + 1]`, and is called `bins[i]`.
    """

    minimum: int
    mean: float
    median: float
    p95: int
    p99: int
    maximum: int
    limit: int | None
    cut_rows: int
    cut_share: float
    edges: tuple[int, ...]
    counts: tuple[int, ...]
    bins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PaddingWaste:
    """Tokens computed per real token under one way of batching; 1.0 is no waste."""

    method: str
    source: float
    target: float | None  # None for a classifier, whose target is no text
    both: float


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How often one entry of the vocabulary occurs."""

    token: str
    token_id: int
    count: int


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Which entries of the vocabulary a split uses, sources and targets together."""

    tokens: int
    vocabulary: int
    never_used: int
    unknown: int
    most_frequent: tuple[TokenCount, ...]


@dataclass(frozen=True, slots=True)
class LostCharacter:
    """A character that does not come back when text is encoded and decoded."""

    character: str
    name: str
    count: int
    row_share: float


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What encoding and decoding changes, over `rows` rows. Lower-casing is told apart from losing."""

    rows: int
    affected_share: float
    lower_cased: bool
    lost: tuple[LostCharacter, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token as the model gets it."""

    text: str
    token_id: int
    special: bool


@dataclass(frozen=True, slots=True)
class TokenView:
    """The tokens of one text; `left_out` of them between head and tail are not shown."""

    head: tuple[Token, ...]
    left_out: int
    tail: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ExampleView:
    """One row as the model sees it, cut at the recipe's limits."""

    row_id: str
    source: str
    target: str
    source_tokens: TokenView
    target_tokens: TokenView


@dataclass(frozen=True, slots=True)
class Repeats:
    """Rows of one split that occur more than once."""

    same_pair: int  # rows beyond the first with the same source and target
    several_targets: int  # sources that occur with different targets
    example: str | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of an evaluation split whose source, or whose group (context), occurs in train."""

    split: str
    same_source: int
    same_group: int
    rows: int
    example: str | None


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split."""

    name: str
    rows: int
    rows_by_source: dict[str, int]
    source: LengthSummary
    target: LengthSummary | None  # None for a classifier
    tokens: TokenUse
    padding: tuple[PaddingWaste, ...]
    batch_examples: int
    round_trip: RoundTrip
    repeats: Repeats
    examples: tuple[ExampleView, ...]

    @property
    def sides(self) -> list[tuple[str, LengthSummary]]:
        """Source and, where there is one, target."""
        sides = (("source", self.source), ("target", self.target))
        return [(side, lengths) for side, lengths in sides if lengths is not None]


@dataclass(frozen=True, slots=True)
class DataReport:
    """All splits, what they share, and what to do about it."""

    description: str
    data: tuple[str, ...]
    tokenizer: str
    splits: tuple[SplitReport, ...]
    overlaps: tuple[Overlap, ...]
    events: tuple[str, ...]
    findings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and text."""
        return asdict(self)
