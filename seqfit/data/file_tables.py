"""Tables from files that are known to belong together, and from data sets of the Hugging Face Hub.

In: the source's part of the recipe and the files (one, the parts of one, parallel text, one per class). Out:
`DataTable`, rows that can be read again and again. Which files belong together is decided in `seqfit.data.tables`.

`datasets` downloads and stores the files of a Hub data set such as knkarthick/dialogsum; then they are read like any
others. Integers of a ClassLabel column become their names, so that a template or a label list can use them.

    {"text": "Unions ...", "label": 2} -> {"text": "Unions ...", "label": "Business"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from seqfit.data.file_groups import ALL, ClassFiles, ParallelSet, layout_notes, read_classes
from seqfit.data.formats import read_parallel_files, read_rows
from seqfit.data.layout import FileOptions, find_layout
from seqfit.data.name_words import split_of
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.text_files import find_encoding
from seqfit.errors import DataError, did_you_mean
from seqfit.hub import use_hub
from seqfit.recipe import SourceRecipe

_CONVERTED = "refs/convert/parquet"  # the Hub's own conversion of data sets that are scripts


@dataclass(frozen=True)
class DataTable:
    """Rows that can be read again and again; `notes` say what is unusual about them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[DataRow]]
    find_notes: Callable[[], tuple[str, ...]] = tuple

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Found on first use, because that may read the files."""
        return self.find_notes()


def options_of(source: SourceRecipe) -> FileOptions:
    columns = None if source.columns is None else tuple(source.columns)
    return FileOptions(source.format, source.encoding, source.header, columns, source.sheet)


def columns_of_file(source: SourceRecipe, file: Path) -> tuple[str, ...]:
    """The columns of the first row, for a comparison and a message."""
    try:
        return tuple(next((row for row in read_rows(file, options_of(source)) if not isinstance(row, BadRow)), {}))
    except DataError:
        return ("columns not known",)


def list_names(files: Sequence[Path], most: int = 8) -> str:
    """'a.csv, b.csv, and 3 more'."""
    names = [file.name for file in files[:most]]
    return ", ".join([*names, f"and {len(files) - most} more"] if len(files) > most else names)


def build_table(
    source: SourceRecipe, files: Sequence[Path], notes: Sequence[str] = (), like: Path | None = None
) -> DataTable:
    """The rows of one file, or of the parts of one; `like` is a file of another split, whose header is known."""
    options = options_of(source)

    def options_for(file: Path) -> FileOptions:
        model = like or files[0]
        return options if file == model else replace(options, known=find_layout(model, options).names)

    def read() -> Iterator[DataRow]:
        for file in files:
            yield from read_rows(file, options_for(file))

    def find_notes() -> tuple[str, ...]:
        found = [note for file in files for note in find_layout(file, options_for(file)).notes]
        parts = [f"{len(files)} files are read as one table: {list_names(files)}"] if len(files) > 1 else []
        return tuple(dict.fromkeys([*notes, *parts, *found]))

    return DataTable(_name_of(files), tuple(files), read, find_notes)


def _name_of(files: Sequence[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def build_json_tables(source: SourceRecipe, path: Path, keys: Sequence[str]) -> dict[str, DataTable]:
    """The lists of one JSON file as splits: {"train": [...], "oos_train": [...], "test": [...]}."""
    chosen_keys: dict[str, list[str]] = {split: [key] for split, key in source.splits.items()}
    for key in () if source.splits else keys:
        chosen_keys.setdefault(split_of(key) or ALL, []).append(key)
    options = options_of(source)

    def find_notes(split: str, chosen: Sequence[str]) -> tuple[str, ...]:
        merged = f"{path.name}: {' and '.join(chosen)} are read as {split}"
        return (*find_layout(path, options).notes, *([merged] if len(chosen) > 1 else []))

    return {
        split: DataTable(
            f"{path.name}: {', '.join(chosen)}",
            (path,),
            partial(read_rows, path, options, tuple(chosen)),
            partial(find_notes, split, chosen),
        )
        for split, chosen in chosen_keys.items()
    }


def build_class_table(source: SourceRecipe, found: ClassFiles, name: str) -> DataTable:
    options = options_of(source)
    return DataTable(name, found.all_files, lambda: read_classes(found, options), lambda: layout_notes(found, options))


def build_parallel_table(source: SourceRecipe, found: ParallelSet, others: Sequence[Path] = ()) -> DataTable:
    """Line n of each file as row n; `others` are files next to them that are not read."""

    def find_notes() -> tuple[str, ...]:
        shown = ", ".join(f"{column} ({file.name})" for column, file in found.files.items())
        notes = [] if source.files or source.languages else [f"line n of each of these files is row n: {shown}"]
        left = [*found.left_out, *(file.name for file in others if file.name not in found.left_out)]
        if left:
            notes.append(f"not read: {', '.join(left[:8])}; set data.files to read other files")
        encodings = [find_encoding(file, source.encoding).describe(file.name) for file in found.files.values()]
        return (*notes, *filter(None, encodings))

    files = tuple(found.files.values())
    name = found.stem.removesuffix(".*") or _name_of(files)
    return DataTable(name, files, lambda: read_parallel_files(found.files, source.encoding), find_notes)


def read_hub_rows(dataset: Any) -> Iterator[DataRow]:
    from datasets import ClassLabel

    labels = {name: kind for name, kind in dataset.features.items() if isinstance(kind, ClassLabel)}
    for row in dataset:
        for name, kind in labels.items():
            # -1 and None mean "no label" in data sets whose test labels are secret
            if row[name] is not None and row[name] >= 0:
                row[name] = kind.int2str(row[name])
        yield row


def load_hub_splits(name: str, config: str | None) -> dict[str, DataTable]:
    """All splits, by the data set's own names. The content of their Arrow files identifies the data set's version."""
    from datasets.exceptions import DatasetsError

    use_hub()
    try:
        loaded, notes = _load(name, config)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        # Offline, an unknown name, an unknown configuration and a script each raise another of these.
        given = f"data.hub is '{name}'" + (f" with data.hub_config '{config}'" if config else "")
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{given}: {first_line}",
            "A Hub data set is downloaded once, which needs the network, its exact name and its configuration",
            "Set data.path to a local file or folder, or correct data.hub and data.hub_config",
        ) from error
    tables: dict[str, DataTable] = {}
    for split, dataset in loaded.items():
        files = tuple(Path(file["filename"]) for file in dataset.cache_files)
        tables[split] = DataTable(f"{name}, {split}", files, partial(read_hub_rows, dataset), lambda: notes)
    return tables


def _load(name: str, config: str | None) -> tuple[Any, tuple[str, ...]]:
    """The data set, with a note if it is the Hub's conversion of a script, which `datasets` no longer runs."""
    from datasets import load_dataset

    try:
        return load_dataset(name, config), ()
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
    return load_dataset(name, config, revision=_CONVERTED), (f"{name} is a script; read from its branch {_CONVERTED}",)


def find_hub_tables(source: SourceRecipe) -> dict[str, DataTable]:
    name = source.hub or ""
    loaded = load_hub_splits(name, source.hub_config)
    wanted = _hub_names(source, name, list(loaded))
    for split, own in wanted.items():
        if own not in loaded:
            raise DataError(
                f"data.splits.{split} is '{own}'",
                f"{name} has the splits {', '.join(loaded)}",
                f"Set data.splits.{split} to one of them",
                hint=did_you_mean(own, loaded),
            )
    return {split: loaded[own] for split, own in wanted.items()}


def _hub_names(source: SourceRecipe, name: str, own_names: list[str]) -> dict[str, str]:
    """Split -> the data set's own name for it."""
    if source.splits:
        return {str(split): own for split, own in source.splits.items()}
    if len(own_names) == 1:
        return {split_of(own_names[0]) or ALL: own_names[0]}
    found: dict[str, str] = {}
    for own in own_names:
        split = split_of(own)
        if split in found:
            raise DataError(
                f"{name} has several splits that could be {split}: {found[split]}, {own}",
                "A split is read from one of them",
                f"Choose one, for example data.splits.{split}={own} (data.splits then has to name every split)",
            )
        if split is not None:
            found[split] = own
    if not found:
        raise DataError(
            f"{name} has the splits {', '.join(own_names)}",
            "None of these names says train, validation or test",
            f"Say which is which, for example data.splits.train={own_names[0]}",
        )
    return found
