"""Lengths in numbers: summary, histogram, what limits would cut, what batching pads. Arrays in, values out.

lengths 3 5 4 20, batches of 2            tokens computed    per real token (32)
max_length  (all to 20)                   80                 2.50
dynamic     [3 5] [4 20]                  10 + 40            1.56
grouped     [3 4] [5 20]  (sorted)        8 + 40             1.50
ragged      no padding                    32                 1.00
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.data.data_report import LengthSummary, LimitCut, PaddingWaste, Unit
from seqfit.data.tokenized import TokenizedSplit

Lengths = npt.NDArray[np.integer]
Rows = npt.NDArray[np.int64]

_BINS = 24  # a terminal and a phone both show so many
_KEPT_SHARES = (0.9, 0.95, 0.99, 1.0)
_WINDOW_BATCHES = 50  # length-grouped batches are sorted within so many batches, as is usual, so order stays random


def summarise_lengths(lengths: Lengths, limit: int | None, already_cut: int = 0) -> LengthSummary:
    """The distribution of lengths, and how many rows a limit cuts.

    `already_cut` rows were cut before, because the model has no positions beyond the longest length given here.
    """
    if already_cut:
        limit = min(limit or int(lengths.max()), int(lengths.max()))
    cut_rows = 0 if limit is None else max(already_cut, int((lengths > limit).sum()))
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
        cut_rows=cut_rows,
        cut_share=cut_rows / len(lengths),
        edges=edges,
        counts=counts,
        bins=label_bins(edges),
    )


def summarise_splits(splits: Mapping[str, TokenizedSplit]) -> dict[str, dict[str, dict[str, Any]]]:
    """Split -> source and target -> the summary as JSON has it, of the tokens as they are trained on.

    A classifier's targets are no text, and an empty split has no lengths: they are left out.
    """
    summaries: dict[str, dict[str, dict[str, Any]]] = {}
    for name, split in splits.items():
        sides = {
            "source": (split.source_lengths, split.truncated_sources),
            "target": (split.target_lengths, split.truncated_targets),
        }
        summaries[name] = {
            side: asdict(summarise_lengths(lengths, None, cut))
            for side, (lengths, cut) in sides.items()
            if lengths.any()
        }
    return summaries


def measure_limits(lengths: Lengths, unit: Unit = "tokens") -> tuple[LimitCut, ...]:
    """Limits that cut at most a tenth, a twentieth, a hundredth and none of the rows, and what each really cuts."""
    cuts: dict[int, LimitCut] = {}
    for kept in _KEPT_SHARES:
        least = int(np.percentile(lengths, 100 * kept, method="higher"))
        limit = min(int(lengths.max()), round_limit(least) if unit == "tokens" else least)
        rows = int((lengths > limit).sum())
        cuts[limit] = LimitCut(limit, rows, rows / len(lengths))
    return tuple(cuts.values())


def round_limit(tokens: int) -> int:
    """The next multiple of 64, or of 8 for short texts: what hardware likes, and easy to remember."""
    step = 64 if tokens > 128 else 8
    return -(-tokens // step) * step


def bin_lengths(lengths: Lengths) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Edges and counts of bins of a round width that cover 99% of the rows; the last bin takes what is longer."""
    low, high = int(lengths.min()), int(np.percentile(lengths, 99, method="higher"))
    width = _round_width((high + 1 - low) / _BINS)
    start = low // width * width
    edges = list(range(start, high + 1 + width, width))
    edges[-1] = max(edges[-1], int(lengths.max()) + 1)
    counts, _ = np.histogram(lengths, bins=np.asarray(edges))
    return tuple(edges), tuple(int(count) for count in counts)


def label_bins(edges: tuple[int, ...]) -> tuple[str, ...]:
    """Edges 20 40 60 300: '20–39', '40–59', '60+', which takes everything longer. Edges 1 2 3: '1', '2'."""
    labels = [f"{low}–{high - 1}" if high - low > 1 else f"{low}" for low, high in itertools.pairwise(edges)]
    if edges[-1] - edges[-2] > edges[1] - edges[0]:
        labels[-1] = f"{edges[-2]}+"
    return tuple(labels)


def measure_padding(
    source: Lengths, target: Lengths, batch: int, pad_to: tuple[int, int], seed: int
) -> list[PaddingWaste]:
    """Tokens computed per real token, of each kind of batching; max_length pads (source, target) to `pad_to`."""
    shuffled = np.random.default_rng(seed).permutation(len(source))
    everything = (len(source) * pad_to[0], len(source) * pad_to[1])
    computed = {
        "max_length": everything,
        "dynamic": _padded_tokens(source, target, shuffled, batch),
        "grouped": _padded_tokens(source, target, _group_by_length(source, target, shuffled, batch), batch),
        "ragged": (int(source.sum()), int(target.sum())),
    }
    source_tokens, target_tokens = int(source.sum()), int(target.sum())
    return [
        PaddingWaste(
            method,
            source=padded_source / source_tokens,
            target=padded_target / target_tokens if target_tokens else None,
            both=(padded_source + padded_target) / (source_tokens + target_tokens),
        )
        for method, (padded_source, padded_target) in computed.items()
    ]


def _group_by_length(source: Lengths, target: Lengths, order: Rows, batch: int) -> Rows:
    """Windows of batches, each sorted by source and then target length."""
    window = batch * _WINDOW_BATCHES
    windows = [order[start : start + window] for start in range(0, len(order), window)]
    return np.concatenate([rows[np.lexsort((target[rows], source[rows]))] for rows in windows])


def _padded_tokens(source: Lengths, target: Lengths, order: Rows, batch: int) -> tuple[int, int]:
    """Source and target tokens when consecutive rows are padded to the longest of their batch."""
    starts = np.arange(0, len(order), batch)
    sizes = np.diff(np.append(starts, len(order)))
    longest_source = np.maximum.reduceat(source[order], starts)
    longest_target = np.maximum.reduceat(target[order], starts)
    return int(sizes @ longest_source), int(sizes @ longest_target)


def _round_width(at_least: float) -> int:
    """The next of 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, ..."""
    power = 1
    while True:
        for width in (power, 2 * power, 5 * power // 2, 5 * power):
            if width >= at_least:
                return width
        power *= 10
