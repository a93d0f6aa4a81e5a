"""Splits: which rows are train, validation and test.

In: a source's part of the recipe, the seed, and a function that names a row's group. Out: per split a `Selection`, its
rows and the events about them. Splits that the data lacks are split off the donor, the first of train, the unsplit
file, validation and test that exists; by a hash of the group, so that no group (a context with its questions) is in two
splits, and the rows are the same on every machine.

    files                  train                validation            test
    train, test            train's rest         10% of train          test
    dev                    dev's rest           10% of dev            10% of dev
    one file, ids: test    the others' rest     10% of the others     rows whose ids are listed

The one idea: all choices are made on a `RowIndex`, arrays with 8 to 13 bytes per row that one pass over the table
fills; the rows themselves are not kept. The groups' hashes are ranked; the first tenth is test, the next validation.

    rows                                       groups            listed   values
    {"id": "7", "context": "A", "label": "x"}  hash("A")         -1       0
    {"id": "8", "context": "A", "label": "y"}  hash("A")         -1       1
    {"id": "9", "context": "B", "label": "x"}  hash("B")         2        0        (9 is in the list of test ids)

A row that can't be read or has no source is a group of its own, so that such rows are in all splits; rendering leaves
them out and counts them.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqfit.data.file_groups import ALL
from seqfit.data.file_tables import DataTable
from seqfit.data.mapped import map_tables
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.tables import find_tables
from seqfit.data.text_files import read_text_lines
from seqfit.errors import DataError, RowError, SeqfitError, did_you_mean
from seqfit.paths import require_file
from seqfit.progress import Progress, ReadingProgress
from seqfit.recipe import SPLITS, SourceRecipe
from seqfit.units import format_share

UNLISTED = -1
NO_VALUE = -1  # of a row that can't be read


@dataclass(frozen=True)
class RowIndex:
    groups: NDArray[np.uint64]  # hash of seed and group
    listed: NDArray[np.int8]  # index into SPLITS, UNLISTED if no list has the row's id; empty without lists
    values: NDArray[np.int32]  # index into value_names of the row's value in the balanced column; empty without one
    value_names: list[str]

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class Indexer:
    title: str
    seed: int
    group: str | None
    group_of: Callable[[DataRow], str]
    ids: Mapping[str, frozenset[str]]
    balance: str | None
    progress: Progress | None = None

    def build(self, table: DataTable) -> RowIndex:
        groups, listed, values = bytearray(), array("b"), array("i")
        numbers: dict[str, int] = {}
        salted = hashlib.blake2b(digest_size=8, key=str(self.seed).encode())
        shown = ReadingProgress(self.progress, f"{self.title}: splitting", table.files)
        number = 0
        for number, row in enumerate(table.read(), 1):
            # surrogatepass: rendering counts rows with broken text
            hashed = salted.copy()
            hashed.update(self._group(row, number).encode("utf-8", "surrogatepass"))
            groups += hashed.digest()
            if self.ids:
                row_id = None if isinstance(row, BadRow) else str(self._column(row, number, "id", "data.ids"))
                listed.append(next((SPLITS.index(split) for split, ids in self.ids.items() if row_id in ids), UNLISTED))
            if self.balance is not None and isinstance(row, BadRow):
                values.append(NO_VALUE)
            elif self.balance is not None:
                value = str(self._column(row, number, self.balance, "data.balance"))
                values.append(numbers.setdefault(value, len(numbers)))
            shown.report(number)
        shown.end(number)
        return RowIndex(
            np.frombuffer(groups, dtype="<u8"),
            np.frombuffer(listed, dtype=np.int8),
            np.frombuffer(values, dtype=np.int32),
            list(numbers),
        )

    def _group(self, row: DataRow, number: int) -> str:
        if isinstance(row, BadRow):
            return f"\0row {number}"
        if self.group is not None:
            return str(self._column(row, number, self.group, "data.group"))
        try:
            return self.group_of(row)
        except RowError:
            return f"\0row {number}"
        except SeqfitError as error:
            raise type(error)(f"{self.title}, row {number}: {error}") from error

    def _column(self, row: DataRow, number: int, column: str, field: str) -> object:
        if column in row:
            return row[column]
        raise DataError(
            f"{self.title}, row {number}: {field} needs the column '{column}'",
            f"The row has {', '.join(row)}",
            "Add an id to every row" if column == "id" else f"Set {field} to a column that every row has",
            hint=did_you_mean(column, row),
        )


Mask = NDArray[np.bool_]
_SORTED_PARTS = 16
_CHOSEN_FROM = 1 << 20


@dataclass(frozen=True)
class Selection:
    table: DataTable
    kept: Mask | None  # per row of the table; None keeps all
    events: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[int, DataRow]]:
        """Number of the row in its table, from 1, and the row."""
        return ((number, row) for _, number, row in read_together([self]))

    @cached_property
    def count(self) -> int | None:
        """The number of rows, if it is known before reading them."""
        return None if self.kept is None else int(self.kept.sum())


def read_together(selections: Sequence[Selection]) -> Iterator[tuple[int, int, DataRow]]:
    """Index of a selection, row number, and row, for several selections of one table, which is read once."""
    masks = [None if selection.kept is None else selection.kept.tobytes() for selection in selections]
    for number, row in enumerate(selections[0].table.read()):
        for which, mask in enumerate(masks):
            if mask is None or mask[number]:
                yield which, number + 1, row


class SourceSplits:
    """The splits of one source. Finding them reads no rows; `select` may read the table.

    `group_of` names a row's group unless data.group does, `named` are the task's columns.
    """

    def __init__(
        self,
        source: SourceRecipe,
        seed: int,
        group_of: Callable[[DataRow], str],
        progress: Progress | None = None,
        named: Collection[str] = (),
    ) -> None:
        self.source = source
        self.tables = map_tables(find_tables(source, named), source.map)
        self._seed = seed
        self._donor = next(name for name in ("train", ALL, "validation", "test") if name in self.tables)
        self._fractions = {str(split): fraction for split, fraction in source.holdout.items()}
        self._limits = {str(split): limit for split, limit in source.limit.items()}
        self.id_files: dict[str, Path] = {}
        if source.path is not None:  # one recipe may serve both: the Hub data set is split, a folder has its lists
            base = Path(source.path).expanduser()
            folder = base if base.is_dir() else base.parent
            self.id_files = {one: require_file(folder / name, f"data.ids.{one}") for one, name in source.ids.items()}
        for split, file in self.id_files.items():
            if split in self.tables and split != self._donor:
                raise DataError(
                    f"data.ids.{split} is {file.name}, and {self.tables[split].name} is a {split} file",
                    "A split comes from a file of its own or from a list of ids, not from both",
                    f"Remove data.ids.{split}, or name only the files of the other splits in data.splits",
                )
        ids = {split: read_ids(file) for split, file in self.id_files.items()}
        self._indexer = Indexer(source.title, seed, source.group, group_of, ids, source.balance, progress)
        self._indexes: dict[str, RowIndex] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The splits that exist or are to be split off."""
        gives = self._donor in ("train", ALL) or self._fractions.get(self._donor, 0) > 0
        return tuple(
            split
            for split in SPLITS
            if self._has_own_rows(split)
            or split == self._donor
            or (gives and (split == "train" or self._fractions.get(split, 0) > 0))
        )

    def select(self, split: str) -> Selection:
        """The rows of a split. An empty split is a DataError."""
        name = self._table_name(split)
        kept: Mask | None = None
        events = list(self.tables[name].notes)  # the same for all splits of a file
        if self.source.path is None and split in self.source.ids:
            events.append(f"{split}: data.ids.{split} is not used, because it names a file in a folder, not on the Hub")
        if name == self._donor and self._is_divided:
            kept = self._division[0][split]
            events += self._division[1][split]
            if not kept.any():
                raise DataError(
                    f"{self.source.title}: no rows are left for {split}",
                    f"{self.tables[name].name} has too few groups (rows that share a context) for all splits",
                    f"Name a file in data.splits.{split}, set a fraction of data.holdout to 0 (data.holdout.test=0), "
                    "or set data.group to a column with more different values",
                )
        if split in self._limits:
            index, limit = self._index(name), self._limits[split]
            rows: Mask = np.ones(len(index), dtype=np.bool_) if kept is None else kept
            if self.source.balance is None:
                kept = choose_rows(rows, limit, self._seed)
            else:
                kept, choices = self._balanced(split, index, rows)
                events += choices
            if (count := int(kept.sum())) < (total := int(rows.sum())):
                events.append(f"{split}: {count} of {total} rows chosen by seed (data.limit.{split}={limit})")
        return Selection(self.tables[name], kept, tuple(events))

    def name_table(self, split: str) -> str:
        """The table that holds the split's rows: its own name or, if two tables share one, that of its split."""
        name = self._table_name(split)
        own = self.tables[name].name
        return own if [table.name for table in self.tables.values()].count(own) == 1 else name

    def _table_name(self, split: str) -> str:
        return split if split in self.tables else self._donor

    def _has_own_rows(self, split: str) -> bool:
        return split in self.id_files or (split in self.tables and split != self._donor)

    @property
    def _is_divided(self) -> bool:
        """Whether the donor's rows are divided among several splits, which takes an index."""
        if self._donor == ALL and self.names == ("train",):
            return False
        return bool(self.id_files) or any(
            split != self._donor and not self._has_own_rows(split) for split in self.names
        )

    def _index(self, name: str) -> RowIndex:
        if name not in self._indexes:
            self._indexes[name] = self._indexer.build(self.tables[name])
        return self._indexes[name]

    @cached_property
    def _division(self) -> tuple[dict[str, Mask], dict[str, list[str]]]:
        """Split -> its rows of the donor, and split -> its events."""
        index = self._index(self._donor)
        members: dict[str, Mask] = {split: index.listed == SPLITS.index(split) for split in self.id_files}
        events = self._list_events(index, members) if members else {}
        home = members.get("train", index.listed == UNLISTED if members else np.ones(len(index), dtype=np.bool_))
        groups = index.groups
        ranks = GroupRanks(groups if home.all() else groups[home])
        ranges, notes = self._hold_out(len(ranks))
        if len(ranks) <= len(ranges) < int(home.sum()) and self.source.group is None:
            shared = f"all rows share {len(ranks)} context{'s' if len(ranks) > 1 else ''}"
            groups = replace(self._indexer, group_of=repr).build(self.tables[self._donor]).groups
            ranks = GroupRanks(groups if home.all() else groups[home])
            ranges, notes = self._hold_out(len(ranks))
            by_row = f"train: {shared}, so the data is split by row, and every split has the same contexts"
            notes["train"] = [*notes.get("train", []), by_row]
        rest = home.copy()
        for split, (start, stop) in ranges.items():
            members[split] = home & ranks.contain(groups, start, stop)
            rest &= ~members[split]
        members["train"] = rest
        return members, {split: events.get(split, []) + notes.get(split, []) for split in SPLITS}

    def _hold_out(self, groups: int) -> tuple[dict[str, tuple[int, int]], dict[str, list[str]]]:
        """Split -> range of ranks of its groups, in the order of their hashes, at least one each; and its events."""
        ranges: dict[str, tuple[int, int]] = {}
        start = 0
        for split in ("test", "validation"):  # so another fraction for validation leaves the test rows unchanged
            if split in self.names and not self._has_own_rows(split):
                stop = start + max(1, round(self._fractions[split] * groups))
                ranges[split] = (min(start, groups), min(stop, groups))
                start = stop
        counts = {split: stop - start for split, (start, stop) in ranges.items()}
        if self._donor != "train" and "train" not in self.id_files:
            counts["train"] = groups - sum(counts.values())
        return ranges, {split: [self._describe_holdout(split, n / max(1, groups))] for split, n in counts.items()}

    def _describe_holdout(self, split: str, share: float) -> str:
        if split == self._donor:
            return f"{split}: keeps {format_share(share)} of its groups; the others go to other splits"
        place = self.tables[ALL].name if self._donor == ALL else self._donor
        groups = "of its groups; rows with the same context or source are one group"
        return f"{split}: split from {place} ({format_share(share)} {groups})"

    def _list_events(self, index: RowIndex, members: dict[str, Mask]) -> dict[str, list[str]]:
        unlisted = index.listed == UNLISTED
        events: dict[str, list[str]] = {}
        for split, rows in members.items():
            found, missing = int(rows.sum()), len(self._indexer.ids[split]) - int(rows.sum())
            name = self.id_files[split].name
            events[split] = [f"{split}: {found} rows listed in {name}"]
            if missing > 0:
                events[split].append(f"{split}: {missing} ids of {name} are not in the data")
            shared = len(np.intersect1d(index.groups[rows], index.groups[unlisted]))
            if shared:
                events[split].append(f"{split}: {shared} of its groups also have rows that {name} does not list")
        if "train" in members and unlisted.any():
            events["train"].append(f"train: {int(unlisted.sum())} rows are left out, because no list has their ids")
        return events

    def _balanced(self, split: str, index: RowIndex, rows: Mask) -> tuple[Mask, list[str]]:
        """Equally many rows of each value; a value with fewer rows gives all of them, which is an event."""
        present = [value for value in np.unique(index.values[rows]).tolist() if value != NO_VALUE]
        quota = self._limits[split] // max(1, len(present))
        if quota == 0:
            raise DataError(
                f"data.balance is '{self.source.balance}', which has {len(present)} values in {split}",
                f"data.limit.{split} is {self._limits[split]}, which is less than one row per value",
                f"Raise data.limit.{split} to at least {len(present)}, or balance by a column with fewer values",
            )
        chosen: Mask = np.zeros(len(index), dtype=np.bool_)
        events: list[str] = []
        for value in present:
            picked = choose_rows(rows & (index.values == value), quota, self._seed)
            chosen |= picked
            if (count := int(picked.sum())) < quota:
                name = index.value_names[value]
                events.append(f"{split}: the value '{name}' has only {count} rows of the {quota} per value")
        return chosen, events


def read_ids(path: Path) -> frozenset[str]:
    """Ids from a JSON list, the keys of a JSON object, or the lines of a text file."""
    if path.suffix != ".json":
        return frozenset(line.strip() for line in read_text_lines(path) if line.strip())
    try:
        content = json.loads("".join(read_text_lines(path)))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: {error.msg.lower()}",
            "A list of ids in a .json file must be valid JSON",
            "Correct it there, or write one id per line to a .txt file",
        ) from error
    return frozenset(str(item) for item in content)


class GroupRanks:
    """The distinct hashes of groups in ascending order, sorted one part at a time to save memory."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._hashes = hashes
        self._ends = np.cumsum([len(self._sort_part(part)) for part in range(_SORTED_PARTS)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def contain(self, hashes: NDArray[np.uint64], start: int, stop: int) -> Mask:
        """Mask of the hashes whose rank is at least `start` and less than `stop`."""
        if start >= stop:
            return np.zeros(len(hashes), dtype=np.bool_)
        mask: Mask = hashes >= self._find(start)
        mask &= hashes <= self._find(stop - 1)
        return mask

    def _find(self, rank: int) -> np.uint64:
        part = int(np.searchsorted(self._ends, rank, side="right"))
        found: np.uint64 = self._sort_part(part)[rank - int(self._ends[part])]  # counted from the end
        return found

    def _sort_part(self, part: int) -> NDArray[np.uint64]:
        width = 2**64 // _SORTED_PARTS
        mask = self._hashes >= np.uint64(part * width)
        mask &= self._hashes <= np.uint64(part * width + width - 1)
        found = np.sort(self._hashes[mask])  # np.unique uses a hash table, which takes 20 times as long
        is_new = np.ones(len(found), dtype=np.bool_)
        np.not_equal(found[1:], found[:-1], out=is_new[1:])
        return found[is_new]


def choose_rows(rows: Mask, limit: int, seed: int) -> Mask:
    """At most `limit` of the rows, those whose number hashes lowest; chosen part by part to save memory."""
    best = np.zeros(0, dtype=np.int64)
    for start in range(0, len(rows), _CHOSEN_FROM):
        best = np.concatenate([best, start + np.flatnonzero(rows[start : start + _CHOSEN_FROM])])
        if len(best) > limit:
            best = best[np.argpartition(_scramble(best, seed), limit - 1)[:limit]]
    chosen: Mask = np.zeros(len(rows), dtype=np.bool_)
    chosen[best] = True
    return chosen


def _scramble(rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """A hash of row number and seed (splitmix64): the same choice on every machine and numpy version."""
    mixed = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
