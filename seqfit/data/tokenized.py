"""Tokenized rows on disk, read memory-mapped, so that a million rows take no memory.

In: folders that `seqfit.data.tokenize` has written, one per source. Out: `TokenizedSplit`, in which row numbers run
through all sources, and `PreparedData`, the splits together.

    source a: 3 rows, source b: 2 rows     len(split) == 5     split.source_index == [0 0 0 1 1]
    split.token_ids(3) == (array([192, 3887, 1]), array([2320, 1]))      views into the file, not copies
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqfit.cache import file_digest
from seqfit.data.rows import BadRows, load_bad_rows
from seqfit.errors import DataError
from seqfit.progress import Progress
from seqfit.tasks import Example, Label, Task

Ids = NDArray[np.int32]
ROWS_FILE = "rows.arrow"
FACTS_FILE = "facts.json"
_TEXTS_HELD, _BATCHES_HELD = 20_000, 128  # until the pages that were read are released


@dataclass(frozen=True)
class PartFacts:
    """Counts of one source's rows in one split; tokens are counted before truncation."""

    rows: int = 0
    truncated_sources: int = 0
    truncated_targets: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest_source: int = 0
    longest_target: int = 0
    sha256: str = ""  # of the rows' file
    events: list[str] = field(default_factory=list)
    bad_rows: tuple[BadRows, ...] = ()  # that were left out; not among `rows`

    def add(self, more: PartFacts) -> PartFacts:
        return replace(
            self,
            rows=self.rows + more.rows,
            truncated_sources=self.truncated_sources + more.truncated_sources,
            truncated_targets=self.truncated_targets + more.truncated_targets,
            source_tokens=self.source_tokens + more.source_tokens,
            target_tokens=self.target_tokens + more.target_tokens,
            longest_source=max(self.longest_source, more.longest_source),
            longest_target=max(self.longest_target, more.longest_target),
        )

    def write(self, folder: Path) -> None:
        (folder / FACTS_FILE).write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> PartFacts:
        fields = json.loads((folder / FACTS_FILE).read_text("utf-8"))
        return cls(**fields | {"bad_rows": tuple(map(load_bad_rows, fields["bad_rows"]))})


def find_damage(folder: Path, progress: Progress | None = None) -> str | None:
    """How a cache folder differs from what was written, or None. A file unchanged since its last hash is not read."""
    try:
        facts = PartFacts.read(folder)
        if file_digest(folder / ROWS_FILE, progress) != facts.sha256:
            return f"{ROWS_FILE} is not what was written"
        rows = sum(batch.num_rows for batch in _open_rows(folder)[1])
    except (OSError, ValueError, TypeError, KeyError, DataError) as error:
        return f"{type(error).__name__}: {error}"
    return None if rows == facts.rows else f"{rows} rows instead of {facts.rows}"


class TokenizedSplit:
    """The rows of one split over all sources. It is pickled as file names, which a worker process maps itself."""

    def __init__(self, folders: Sequence[Path], titles: Sequence[str], weights: Sequence[float]) -> None:
        self._folders = tuple(folders)
        self.titles = list(titles)
        self.weights = list(weights)
        self.facts = [PartFacts.read(folder) for folder in folders]
        parts = [_open_rows(folder) for folder in folders]
        self._maps = [mapped for mapped, _ in parts]
        self._batches = [batch for _, batches in parts for batch in batches]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._sources = [_list_views(batch.column("source_ids")) for batch in self._batches]
        self._targets = [_list_views(batch.column("target_ids")) for batch in self._batches]
        self._texts_since = 0

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __reduce__(self) -> tuple[type[TokenizedSplit], tuple[Any, ...]]:
        return TokenizedSplit, (self._folders, self.titles, self.weights)

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of each row's source, after truncation."""
        return np.concatenate([np.diff(offsets) for offsets, _ in _each(self._sources, self._maps)], dtype=np.int32)

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of each row's target, after truncation; 0 for a classifier."""
        return np.concatenate([np.diff(offsets) for offsets, _ in _each(self._targets, self._maps)], dtype=np.int32)

    @cached_property
    def source_index(self) -> NDArray[np.int32]:
        """The data source of each row, an index into `titles` and `weights`."""
        return np.repeat(np.arange(len(self.facts), dtype=np.int32), [facts.rows for facts in self.facts])

    @property
    def truncated_sources(self) -> int:
        return sum(facts.truncated_sources for facts in self.facts)

    @property
    def truncated_targets(self) -> int:
        return sum(facts.truncated_targets for facts in self.facts)

    def token_ids(self, row: int) -> tuple[Ids, Ids]:
        """Source and target ids: read-only views into the mapped file."""
        batch, at = self._locate(row)
        (source_offsets, source_ids), (target_offsets, target_ids) = self._sources[batch], self._targets[batch]
        return (
            source_ids[source_offsets[at] : source_offsets[at + 1]],
            target_ids[target_offsets[at] : target_offsets[at + 1]],
        )

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each of `vocabulary` ids occurs in sources and targets, after truncation."""
        counts = np.zeros(vocabulary, dtype=np.int64)
        for offsets, ids in _each([*self._sources, *self._targets], self._maps):
            counts += np.bincount(ids[offsets[0] : offsets[-1]], minlength=vocabulary)
        return counts

    def label(self, row: int) -> Label:
        """A classifier's target: a class, a score, or which labels apply; -1 if the task has none."""
        batch, at = self._locate(row)
        label: Label = self._batches[batch].column("label")[at].as_py()
        return label

    def target_language(self, row: int) -> str | None:
        """The language code of the row's target; None if the model has no codes."""
        batch, at = self._locate(row)
        code: str | None = self._batches[batch].column("target_language")[at].as_py()
        return code

    def text(self, row: int) -> Example:
        self._texts_since = (self._texts_since + 1) % _TEXTS_HELD
        if self._texts_since == 0:  # somebody reads all texts
            _release_pages(self._maps)
        batch, at = self._locate(row)
        columns = ("id", "source", "target", "references", "group", "choices")
        values = {name: self._batches[batch].column(name)[at].as_py() for name in columns}
        return Example(**values | {name: tuple(values[name]) for name in ("references", "choices")})

    def scores(self) -> NDArray[np.float64]:
        """Every row's label, if labels are numbers."""
        return np.concatenate([batch.column("label").to_numpy() for batch in self._batches], dtype=np.float64)

    def count_target(self, text: str) -> int:
        import pyarrow.compute as pc

        columns = (batch.column("target") for batch in _each(self._batches, self._maps))
        return sum(int(pc.sum(pc.equal(column, text)).as_py() or 0) for column in columns)

    def count_targets(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for batch in _each(self._batches, self._maps):
            for entry in batch.column("target").value_counts().to_pylist():
                counts[entry["values"]] += entry["counts"]
        return counts

    def _locate(self, row: int) -> tuple[int, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        return batch, row - int(self._starts[batch])


@dataclass(frozen=True)
class PreparedData:
    """The requested splits that the data has, the events of preparing them, and a hash of everything."""

    splits: dict[str, TokenizedSplit]
    events: list[str]
    fingerprint: str

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """Rows that can't be used, in the form of a run's manifest: one record per split, source and cause."""
        return [
            {"split": name, "source": title, "of": facts.rows + sum(bad.rows for bad in facts.bad_rows), **asdict(bad)}
            for name, split in self.splits.items()
            for title, facts in zip(split.titles, split.facts, strict=True)
            for bad in facts.bad_rows
        ]


def _open_rows(folder: Path) -> tuple[mmap.mmap, list[Any]]:
    import pyarrow as pa

    try:
        with open(folder / ROWS_FILE, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        return mapped, [reader.get_batch(number) for number in _each(range(reader.num_record_batches), [mapped])]
    except (OSError, ValueError) as error:  # an empty file has no pages; ArrowInvalid is a ValueError
        rule, change = "The tokenized data there is corrupted", "Delete this folder; it will be written again"
        raise DataError(f"{folder}: {error}", rule, change) from error


def _each(parts: Iterable[Any], maps: Sequence[mmap.mmap]) -> Iterator[Any]:
    for number, part in enumerate(parts, 1):
        yield part
        if number % _BATCHES_HELD == 0:
            _release_pages(maps)
    _release_pages(maps)


def _release_pages(maps: Sequence[mmap.mmap]) -> None:
    """Pages that were read count as this process's memory, although the page cache has them."""
    for mapped in maps if hasattr(mmap, "MADV_DONTNEED") else ():  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)


def _list_views(column: Any) -> tuple[Ids, Ids]:
    """Offsets and values of a list column without copying; Arrow's own to_numpy imports pandas."""
    _, offsets, _, values = column.buffers()
    return np.frombuffer(offsets, np.int32, len(column) + 1), np.frombuffer(values or b"", np.int32)


class HashedFile(io.BufferedWriter):
    """A file that hashes (SHA-256) what is written to it, so that it need not be read again."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return super().write(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def to_lists(sequences: list[list[int]]) -> Any:
    """The sequences as one Arrow array, five times as fast as Arrow's own conversion of lists of lists."""
    import pyarrow as pa

    offsets = np.zeros(len(sequences) + 1, dtype=np.int32)
    np.cumsum([len(ids) for ids in sequences], out=offsets[1:])
    values = np.fromiter(itertools.chain.from_iterable(sequences), dtype=np.int32, count=int(offsets[-1]))
    return pa.ListArray.from_arrays(offsets, values)


def explain_targets(task: Task, train: TokenizedSplit) -> list[str]:
    """Problems with labels and scores, and how many rows have the target that replaces a missing one."""
    found = task.find_label_problems(train.count_targets()) if task.recipe.name in task.recipe.HEAD_TASKS else []
    if task.recipe.name != "multilabel" and (text := task.text_of_missing()) is not None:
        found.append(
            f"{train.count_target(text):,} of {len(train):,} rows have the target '{text}', which replaces a missing "
            "target (task.missing_target)"
        )
    return [f"train: {sentence}" for sentence in found]
