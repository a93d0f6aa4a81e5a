"""Tokenized rows in the ids of a trimmed vocabulary, and the tokens that some files use.

`remap_data` replaces ids as they are read. The files on disk keep the full tokenizer's ids, so all trimmings of one
data set share one cache entry.

    remap [0 1 2 2 3]      token_ids(0) was [4 1], is [3 1]

`count_file_tokens` tokenizes every text of some files, without a recipe: data files in any format, or plain text with
one text per line. A recipe's counts are exact, because they include the templates.

    {"id": "a7", "q": "two dogs", "tags": ["dogs"], "n": 3}  ->  counts of "two dogs" and of "dogs"
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqfit.data import PreparedData, TokenizedSplit, read_file
from seqfit.errors import DataError
from seqfit.paths import require_file
from seqfit.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class RemappedSplit(TokenizedSplit):
    """A split with new ids; texts, lengths and everything else are the same."""

    def __init__(self, split: TokenizedSplit, remap: NDArray[np.int32]) -> None:
        super().__init__(split._folders, split.titles, split.weights)
        self._split = split
        self._remap = remap

    def __reduce__(self) -> tuple[type[RemappedSplit], tuple[Any, ...]]:
        return RemappedSplit, (self._split, self._remap)

    def token_ids(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target in new ids: copies, not views."""
        source, target = self._split.token_ids(row)
        return self._remap[source], self._remap[target]

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        old_counts = self._split.token_counts(len(self._remap))
        counts = np.zeros(vocabulary, dtype=np.int64)
        np.add.at(counts, self._remap[old_counts > 0], old_counts[old_counts > 0])
        return counts


def count_tokens(data: PreparedData, vocabulary: int) -> NDArray[np.int64]:
    return sum((split.token_counts(vocabulary) for split in data.splits.values()), np.zeros(vocabulary, dtype=np.int64))


def remap_data(data: PreparedData, remap: NDArray[np.int32]) -> PreparedData:
    return replace(data, splits={name: RemappedSplit(split, remap) for name, split in data.splits.items()})


_CHUNK_TEXTS = 1000


def count_file_tokens(
    files: Sequence[Path], tokenizer: PreTrainedTokenizerBase, progress: Progress | None = None
) -> NDArray[np.int64]:
    """How often each of the tokenizer's ids occurs in all texts of the files, its end token included."""
    from seqfit.model import build_text_encoder  # imports torch, as the tokenizer has by now

    encoder = build_text_encoder(tokenizer)
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for file in files:
        texts, done = _read_texts(require_file(file, "--data")), 0
        while chunk := list(itertools.islice(texts, _CHUNK_TEXTS)):
            ids = np.fromiter(itertools.chain.from_iterable(encoder.encode(chunk)), dtype=np.int64)
            counts += np.bincount(ids, minlength=len(counts))
            done += len(chunk)
            if progress is not None:
                progress(f"{file.name}: counting tokens", done, None)
        if done == 0:
            raise DataError(f"{file} has no text", "The tokens of its texts are kept", "Give a file with texts")
    return counts


def _read_texts(file: Path) -> Iterator[str]:
    for row in read_file(file, skip_bad=True):
        if isinstance(row, str):
            yield from filter(None, [row.rstrip("\r\n")])
        else:
            yield from _texts_in(value for column, value in row.items() if column != "id")


def _texts_in(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts_in(value.values())
        elif isinstance(value, list):
            yield from _texts_in(value)
