"""Which tokens some files use, and tokenized rows in the ids of a trimmed vocabulary.

Tokenized rows for a model whose vocabulary was trimmed: ids are exchanged as they are read.

In: what `prepare_data` gave, and an array old id -> new id. Out: the same data in new ids. The one idea: the files on
disk keep the full tokenizer's ids, so every trimming of one data set shares one entry of the cache.

    remap [0 1 2 2 3]      token_ids(0) was [4 1], is [3 1]

Which words some files use, without a recipe: every text in them is tokenized and counted.

In: data files in any format that `read_rows` knows, or plain text (one text a line), and a tokenizer. Out: how often
each id occurs. Without a task's templates the texts stand alone; a recipe counts what the model really reads.

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

from seqfit.data.formats import ENDINGS, ending, read_rows
from seqfit.data.text_files import read_text_lines, require_file
from seqfit.data.tokenized import Ids, PreparedData, TokenizedSplit
from seqfit.errors import DataError
from seqfit.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class RemappedSplit(TokenizedSplit):
    """A split that answers in new ids; texts, lengths and everything else are the split's own."""

    def __init__(self, split: TokenizedSplit, remap: Ids) -> None:
        super().__init__(split._folders, split.titles, split.weights)
        self._split = split
        self._remap = remap

    def __reduce__(self) -> tuple[type[RemappedSplit], tuple[Any, ...]]:
        return RemappedSplit, (self._split, self._remap)

    def token_ids(self, row: int) -> tuple[Ids, Ids]:
        """Source and target as new ids: copies, not views."""
        source, target = self._split.token_ids(row)
        return self._remap[source], self._remap[target]

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each new id occurs."""
        old_counts = self._split.token_counts(len(self._remap))
        counts = np.zeros(vocabulary, dtype=np.int64)
        np.add.at(counts, self._remap[old_counts > 0], old_counts[old_counts > 0])
        return counts


def count_tokens(data: PreparedData, vocabulary: int) -> NDArray[np.int64]:
    """How often each of `vocabulary` ids occurs in all splits together."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for split in data.splits.values():
        counts += split.token_counts(vocabulary)
    return counts


def remap_data(data: PreparedData, remap: Ids) -> PreparedData:
    """All splits in new ids."""
    return replace(data, splits={name: RemappedSplit(split, remap) for name, split in data.splits.items()})


_CHUNK_TEXTS = 1000


def count_file_tokens(
    files: Sequence[Path], tokenizer: PreTrainedTokenizerBase, progress: Progress | None = None
) -> NDArray[np.int64]:
    """How often each of the tokenizer's ids occurs in all texts of the files, its end token included."""
    from seqfit.model.families import build_text_encoder  # imports torch, as the tokenizer has by now

    encoder = build_text_encoder(tokenizer)
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for file in files:
        texts, done = _read_texts(require_file(file, "--data")), 0
        while chunk := list(itertools.islice(texts, _CHUNK_TEXTS)):
            ids = np.fromiter(itertools.chain.from_iterable(encoder.encode(chunk)), dtype=np.int64)
            counts += np.bincount(ids, minlength=len(counts))
            done += len(chunk)
            if progress is not None:
                progress(f"{file.name}: counting words", done, None)
        if done == 0:
            raise DataError(f"{file} has no text", "the words to keep are those of some texts", "Give another file")
    return counts


def _read_texts(file: Path) -> Iterator[str]:
    if ending(file) not in ENDINGS:
        yield from (text for line in read_text_lines(file) if (text := line.rstrip("\r\n")))
        return
    for row in read_rows(file):
        yield from _texts_in(value for column, value in row.items() if column != "id")


def _texts_in(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts_in(value.values())
        elif isinstance(value, list):
            yield from _texts_in(value)
