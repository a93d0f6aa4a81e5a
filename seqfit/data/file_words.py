"""Which words some files use, without a recipe: every text in them is tokenized and counted.

In: data files in any format that `read_rows` knows, or plain text (one text a line), and a tokenizer. Out: how often
each id occurs. Without a task's templates the texts stand alone; a recipe counts what the model really reads.

    {"id": "a7", "q": "two dogs", "tags": ["dogs"], "n": 3}  ->  counts of "two dogs" and of "dogs"
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqfit.data.encode import Encoder
from seqfit.data.progress import Progress
from seqfit.data.sources import ENDINGS, ending, read_rows
from seqfit.data.text_files import read_lines, require_file
from seqfit.errors import DataError, complain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHUNK_TEXTS = 1000


def count_file_words(
    files: Sequence[Path], tokenizer: PreTrainedTokenizerBase, progress: Progress | None = None
) -> NDArray[np.int64]:
    """How often each of the tokenizer's ids occurs in all texts of the files, its end token included."""
    encoder = Encoder(tokenizer)
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
            raise DataError(
                complain(f"{file} has no text", "the words to keep are those of some texts", "Give another file")
            )
    return counts


def _read_texts(file: Path) -> Iterator[str]:
    if ending(file) not in ENDINGS:
        yield from (text for line in read_lines(file) if (text := line.rstrip("\r\n")))
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
