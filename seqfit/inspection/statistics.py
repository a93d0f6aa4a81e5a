"""Statistics of a data set: lengths, repeated rows, lost characters, classes. Arrays in, values out.

Lengths: summary, histogram, the effect of limits, and what batching pads:

    lengths 3 5 4 20, batches of 2            tokens computed    per real token (32)
    max_length  (all to 20)                   80                 2.50
    dynamic     [3 5] [4 20]                  10 + 40            1.56
    grouped     [3 4] [5 20]  (sorted)        8 + 40             1.50
    packed      no padding                    32                 1.00

Repeated rows, in one split or in train and an evaluation split, by 24 bytes of hashes per row:

    train       (a, 1) (a, 1) (a, 2) (b, 3)      same pair: 1 row     sources with several targets: 1 (a)
    validation  (b, 9) (c, 4)                    same source as in train: 1 (b)

Lost characters: encode, decode, and subtract the characters that came back. Compatibility forms (an ellipsis as three
dots) and plain spaces are not counted, because tokenizers normalise them; lower-casing does not count as losing.

    T5:  "¿Año?\\n"  ->  "Ao? "        lost: ¿ once, ñ once, line feed once

Classes, in the task's order:

    classify, labels [no, yes]    {"yes": 7, "no": 3}          ->  no 3, yes 7
    multilabel                    {"joy": 2, "joy, fear": 1}   ->  joy 3, fear 1
    regression                    {"0.5": 1, "4": 2, "5": 1}   ->  0.5–0.95 1, ..., 4.55–5 1      (ten ranges)
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqfit.data import TokenizedSplit
from seqfit.inspection.report import (
    ClassCount,
    LengthSummary,
    LengthUnit,
    LimitEffect,
    LostCharacter,
    PaddingWaste,
    RoundTrip,
)
from seqfit.recipe import TaskRecipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


LengthArray = npt.NDArray[np.integer]
_Rows = npt.NDArray[np.int64]
_BINS = 24  # as many as fit on a terminal and a phone
_KEPT_SHARES = (0.9, 0.95, 0.99, 1.0)
_WINDOW_BATCHES = 50  # grouped batches are sorted within windows, as is usual, so that the order stays random
Hashes = npt.NDArray[np.uint64]
NO_GROUP = np.uint64(0)
_MOST_SHOWN = 40  # lost characters
_CONTROL_NAMES = {"\n": "LINE FEED", "\r": "CARRIAGE RETURN", "\t": "TAB"}
_RANGES = 10  # of a regression's targets


def summarise_lengths(lengths: LengthArray, limit: int | None, already_truncated: int = 0) -> LengthSummary:
    """`already_truncated` rows were truncated before, because the model has no positions beyond the longest length."""
    if already_truncated:
        limit = min(limit or int(lengths.max()), int(lengths.max()))
    truncated_rows = 0 if limit is None else max(already_truncated, int((lengths > limit).sum()))
    edges, counts = bin_lengths(lengths)
    p95, p99 = np.percentile(lengths, [95, 99], method="higher")
    return LengthSummary(
        minimum=int(lengths.min()),
        mean=float(lengths.mean()),
        median=float(np.median(lengths)),
        p95=int(p95),
        p99=int(p99),
        maximum=int(lengths.max()),
        limit=limit,
        truncated_rows=truncated_rows,
        truncated_share=truncated_rows / len(lengths),
        edges=edges,
        counts=counts,
        bins=label_bins(edges),
    )


def summarise_splits(splits: Mapping[str, TokenizedSplit]) -> dict[str, dict[str, dict[str, Any]]]:
    """Split -> side -> summary of what is trained on; a classifier's targets and empty splits are left out."""
    summaries: dict[str, dict[str, dict[str, Any]]] = {}
    for name, split in splits.items():
        sides = {
            "source": (split.source_lengths, split.truncated_sources),
            "target": (split.target_lengths, split.truncated_targets),
        }
        summaries[name] = {
            side: asdict(summarise_lengths(lengths, None, truncated))
            for side, (lengths, truncated) in sides.items()
            if lengths.any()
        }
    return summaries


def measure_limits(lengths: LengthArray, unit: LengthUnit = "tokens") -> tuple[LimitEffect, ...]:
    """Limits that truncate at most a tenth, a twentieth, a hundredth and none of the rows, and their exact effect."""
    effects: dict[int, LimitEffect] = {}
    for kept in _KEPT_SHARES:
        least = int(np.percentile(lengths, 100 * kept, method="higher"))
        limit = min(int(lengths.max()), round_limit(least) if unit == "tokens" else least)
        rows = int((lengths > limit).sum())
        effects[limit] = LimitEffect(limit, rows, rows / len(lengths))
    return tuple(effects.values())


def round_limit(tokens: int) -> int:
    """The next multiple of 64, or of 8 for short texts: efficient on hardware and easy to remember."""
    step = 64 if tokens > 128 else 8
    return -(-tokens // step) * step


def bin_lengths(lengths: LengthArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Edges and counts of bins of a round width that cover 99% of the rows; the last bin holds everything longer."""
    low, high = int(lengths.min()), int(np.percentile(lengths, 99, method="higher"))
    width = _round_width((high + 1 - low) / _BINS)
    start = low // width * width
    edges = list(range(start, high + 1 + width, width))
    edges[-1] = max(edges[-1], int(lengths.max()) + 1)
    counts, _ = np.histogram(lengths, bins=np.asarray(edges))
    return tuple(edges), tuple(int(count) for count in counts)


def label_bins(edges: tuple[int, ...]) -> tuple[str, ...]:
    """Edges 20 40 60 300: '20–39', '40–59', '60+', which holds everything longer. Edges 1 2 3: '1', '2'."""
    labels = [f"{low}–{high - 1}" if high - low > 1 else f"{low}" for low, high in itertools.pairwise(edges)]
    if edges[-1] - edges[-2] > edges[1] - edges[0]:
        labels[-1] = f"{edges[-2]}+"
    return tuple(labels)


def measure_padding(
    source: LengthArray, target: LengthArray, batch: int, pad_to: tuple[int, int], seed: int
) -> list[PaddingWaste]:
    """Tokens computed per real token for each batching method; max_length pads (source, target) to `pad_to`."""
    shuffled = np.random.default_rng(seed).permutation(len(source))
    window = batch * _WINDOW_BATCHES
    windows = [shuffled[start : start + window] for start in range(0, len(shuffled), window)]
    grouped = np.concatenate([rows[np.lexsort((target[rows], source[rows]))] for rows in windows])
    source_tokens, target_tokens = int(source.sum()), int(target.sum())
    computed = {
        "max_length": (len(source) * pad_to[0], len(source) * pad_to[1]),
        "dynamic": _padded_tokens(source, target, shuffled, batch),
        "grouped": _padded_tokens(source, target, grouped, batch),
        "packed": (source_tokens, target_tokens),
    }
    return [
        PaddingWaste(
            method,
            source=padded_source / source_tokens,
            target=padded_target / target_tokens if target_tokens else None,
            both=(padded_source + padded_target) / (source_tokens + target_tokens),
        )
        for method, (padded_source, padded_target) in computed.items()
    ]


def _padded_tokens(source: LengthArray, target: LengthArray, order: _Rows, batch: int) -> tuple[int, int]:
    """Source and target tokens if consecutive rows are padded to the longest of their batch."""
    starts = np.arange(0, len(order), batch)
    sizes = np.diff(np.append(starts, len(order)))
    longest_source = np.maximum.reduceat(source[order], starts)
    longest_target = np.maximum.reduceat(target[order], starts)
    return int(sizes @ longest_source), int(sizes @ longest_target)


def _round_width(at_least: float) -> int:
    """The next of 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, ..."""
    powers = (int(10**exponent) for exponent in itertools.count())
    widths = (width for power in powers for width in (power, 2 * power, 5 * power // 2, 5 * power))
    return next(width for width in widths if width >= at_least)


@dataclass(frozen=True)
class RowHashes:
    """Hashes of each row's source, of its source and target, and of its group (0: none)."""

    source: Hashes
    pair: Hashes
    group: Hashes


def hash_text(*parts: str) -> int:
    """64 bits: the chance of any collision among a million rows is 3 in 100 million."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\x00")
    return int.from_bytes(digest.digest(), "little")


class RowHasher:
    def __init__(self) -> None:
        self._columns = (array("Q"), array("Q"), array("Q"))

    def add(self, source: str, target: str, group: str | None) -> None:
        hashes = (hash_text(source), hash_text(source, target), hash_text(group) if group else int(NO_GROUP))
        for column, number in zip(self._columns, hashes, strict=True):
            column.append(number)

    def finish(self) -> RowHashes:
        return RowHashes(*(np.array(column, dtype=np.uint64) for column in self._columns))


def find_same_pairs(rows: RowHashes) -> npt.NDArray[np.intp]:
    """Rows whose source and target have occurred before."""
    _, first = np.unique(rows.pair, return_index=True)
    return np.setdiff1d(np.arange(len(rows.pair)), first)


def count_several_targets(rows: RowHashes) -> int:
    _, first = np.unique(rows.pair, return_index=True)
    _, targets = np.unique(rows.source[first], return_counts=True)
    return int((targets > 1).sum())


def find_shared_sources(rows: RowHashes, train: RowHashes) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.isin(rows.source, train.source))


def find_shared_groups(rows: RowHashes, train: RowHashes) -> npt.NDArray[np.intp]:
    return np.flatnonzero((rows.group != NO_GROUP) & np.isin(rows.group, train.group))


class LossCount:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from seqfit.model import build_text_encoder  # imports torch, as the tokenizer has by now

        self._tokenizer = tokenizer
        self._encoder = build_text_encoder(tokenizer)
        self._language = next(iter(self._encoder.codes), None)  # any code: it changes no character
        self._characters: Counter[str] = Counter()
        self._rows_by_character: Counter[str] = Counter()
        self._rows = self._affected = 0
        self._lower_cased = False

    def add(self, rows: Sequence[tuple[str, str]]) -> None:
        """Round-trip sources and targets, each through its own side of the tokenizer; '' is no target."""
        sources = self._decode(self._encoder.encode([source for source, _ in rows], self._language))
        targets = self._decode(self._encoder.encode_targets([target for _, target in rows], self._language))
        for before, *after in zip(rows, sources, targets, strict=True):
            lost, lower_cased = compare_text(" ".join(before), " ".join(after))
            self._characters.update(lost)
            self._rows_by_character.update(lost.keys())
            self._rows += 1
            self._affected += bool(lost)
            self._lower_cased |= lower_cased

    def _decode(self, sequences: list[list[int]]) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return texts

    def summarise(self) -> RoundTrip:
        lost = [
            LostCharacter(character, name_character(character), self._characters[character], rows / self._rows)
            for character, rows in self._rows_by_character.most_common(_MOST_SHOWN)
        ]
        return RoundTrip(self._rows, self._affected / max(self._rows, 1), self._lower_cased, tuple(lost))


def compare_text(before: str, after: str) -> tuple[Counter[str], bool]:
    """Counts of the characters of `before` that `after` lacks, and whether capitals came back in lower case."""
    if before == after:
        return Counter(), False
    had, has = _count_characters(before), _count_characters(after)
    lost, gained = had - has, has - had
    lower_cased = False
    for character in [character for character in lost if character != character.lower()]:
        small = character.lower()
        came_back = min(lost[character], gained[small])
        lower_cased |= came_back > 0
        lost[character] -= came_back
        gained[small] -= came_back
    return +lost, lower_cased


def name_character(character: str) -> str:
    """Its Unicode name; control characters have none and get their common name."""
    return _CONTROL_NAMES.get(character, unicodedata.name(character, f"U+{ord(character):04X}"))


def _count_characters(text: str) -> Counter[str]:
    counts = Counter(text if text.isascii() else unicodedata.normalize("NFKC", text))
    del counts[" "]
    return counts


def count_classes(task: TaskRecipe, targets: Mapping[str, int]) -> tuple[ClassCount, ...]:
    """Labels with their rows; the recipe's labels are in its order, whether they occur or not. None for other tasks."""
    if task.name not in TaskRecipe.HEAD_TASKS:
        return ()
    if task.name == "regression":
        return _count_ranges(targets)
    counts: Counter[str] = Counter(dict.fromkeys(task.label_values or task.label_columns or [], 0))
    for target, rows in targets.items():
        labels = [target] if task.name == "classify" else filter(None, map(str.strip, target.split(task.LABEL_JOINT)))
        counts.update(dict.fromkeys(labels, rows))
    return tuple(ClassCount(label, count) for label, count in counts.items())


def _count_ranges(targets: Mapping[str, int]) -> tuple[ClassCount, ...]:
    numbers, rows = [], []
    for target, count in targets.items():
        try:
            numbers.append(float(target))
        except ValueError:  # not a number; the task reports such rows
            continue
        rows.append(count)
    if not numbers:
        return ()
    counts, edges = np.histogram(numbers, bins=min(_RANGES, len(numbers)), weights=rows)
    return tuple(
        ClassCount(f"{low:.3g}–{high:.3g}", int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )
