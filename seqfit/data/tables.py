"""Which files (or Hub splits) a data source consists of.

In: the source's part of the recipe. Out: split name -> `Table`, rows that can be read again and again; the name is
`ALL` where nothing says which split the rows are. The one idea: a split is found by a word in the file's name, and
where two files could be meant the recipe must say which.

    folder: causalqa_train.psv causalqa_valid.psv LICENSE     -> {"train": ..., "validation": ...}
    folder: train-00000-of-00002.parquet train-00001-...      -> {"train": both files}
    folder: train.en.gz train.de.gz val.en.gz val.de.gz       -> {"train": pair, "validation": pair}
    folder: train/1.json train/2.json test/1.json             -> {"train": both files, "test": ...}
    folder: pos.txt neg.txt                                   -> {"all": texts with the columns text and label}
    folder: ori_pqal.json                                     -> {"all": ...}
    file:   corpus.zip (train.csv, test.csv)                  -> {"train": ..., "test": ...}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from seqfit.data.archives import ARCHIVE_ENDINGS, is_archive, plain_file_name, unpack
from seqfit.data.content import recognise_format, split_of
from seqfit.data.file_groups import (
    ABOUT_THE_LABELS,
    ALL,
    ClassFiles,
    ParallelSet,
    are_parts,
    are_shards,
    by_split,
    find_class_files,
    find_class_folders,
    find_data_files,
    find_parallel,
    find_partners,
    language_sets,
    layout_notes,
    may_be_data,
    read_classes,
    stated_files,
    stem_set,
)
from seqfit.data.formats import (
    ENDINGS,
    FileOptions,
    detect_format,
    ending,
    find_layout,
    knows_header,
    load_hub_splits,
    read_parallel,
    read_rows,
)
from seqfit.data.json_stream import find_json_layout
from seqfit.data.nested import spread_rows
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.text_files import find_encoding, list_folder, require_file
from seqfit.errors import DataError, HeaderUnsure, did_you_mean
from seqfit.recipe.schema import SPLITS, SourceRecipe

__all__ = ["ALL", "DataTable", "find_tables", "split_of"]

_JOIN_SAMPLE = 1000
_ORDER = ("train", ALL, "validation", "test")


@dataclass(frozen=True)
class DataTable:
    """Rows that can be read again and again; `notes` say what was recognised and is not as usual about them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[DataRow]]
    find_notes: Callable[[], tuple[str, ...]] = tuple

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Found when they are asked for, because that may read the files."""
        return self.find_notes()


def find_tables(source: SourceRecipe, named: Collection[str] = ()) -> dict[str, DataTable]:
    """Split -> table; `ALL` -> table where the source is one piece.

    `named` are columns that a task names: where a first line may be a header or a row, they decide.
    """
    try:
        tables = _find_tables(source)
        if named and source.header is None:
            for table in tables.values():
                _ = table.notes  # looks at the first lines
    except HeaderUnsure as error:
        return _find_tables(source.model_copy(update={"header": knows_header(error, named)}))
    return tables


def _find_tables(source: SourceRecipe) -> dict[str, DataTable]:
    found = _hub_tables(source) if source.path is None else _local_tables(source, Path(source.path).expanduser())
    tables = {split: found[split] for split in _ORDER if split in found}
    if source.split_column is not None:
        tables = _divide(tables, source.split_column, source.title)
    return {split: _nested(table, source) for split, table in tables.items()}


def _divide(tables: dict[str, DataTable], column: str, title: str) -> dict[str, DataTable]:
    """One table per split that the column names; only data that is one piece is divided."""
    if list(tables) != [ALL]:
        raise DataError(
            f"data.split_column is '{column}', and {title} has files for {', '.join(tables)}",
            "Either the files say which split a row is in, or a column does",
            "Remove data.split_column, or give one file with data.path",
        )
    whole = tables[ALL]
    values = {_split_in(row, column) for row in whole.read() if not isinstance(row, BadRow)}
    if values <= {None}:
        first = next((row for row in whole.read() if not isinstance(row, BadRow)), {})
        raise DataError(
            f"data.split_column is '{column}'",
            f"The rows of {title} have the columns {', '.join(first)}",
            "Name a column that holds train, validation or test",
            hint=did_you_mean(column, list(first)),
        )

    def read(split: str) -> Iterator[DataRow]:
        for row in whole.read():
            found = None if isinstance(row, BadRow) else _split_in(row, column)
            if (found or "train") == split:
                yield row

    return {split: replace(whole, name=split, read=partial(read, split)) for split in _ORDER if split in values}


def _split_in(row: DataRow, column: str) -> str | None:
    """The split that a row's column names; None where the row has no such column."""
    return None if column not in row else split_of(str(row[column])) or "train"


def _nested(table: DataTable, source: SourceRecipe) -> DataTable:
    return replace(table, read=lambda: spread_rows(table.read(), source.each, source.turns))


def _local_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    if source.languages is not None and not path.exists():
        return {ALL: _parallel_table(source, stem_set(path, source.languages))}
    require_file(path)
    if path.is_file() and source.format in ("auto", "classes") and is_archive(path):
        return _archive_tables(source, path)
    if source.files:
        folder = path if path.is_dir() else path.parent
        stated = stated_files(folder, source.files, {str(split): name for split, name in source.splits.items()})
        return {split: _parallel_table(source, ParallelSet("", files)) for split, files in stated.items()}
    if source.languages is not None or source.format == "parallel":
        return _parallel_tables(source, path)
    return _folder_tables(source, path) if path.is_dir() else _file_tables(source, path)


def _archive_tables(source: SourceRecipe, archive: Path) -> dict[str, DataTable]:
    """The tables of the unpacked files; errors speak of the archive and not of the place in the cache."""
    folder = unpack(archive)
    with _speaking_of(archive, folder):
        tables = _local_tables(source, _only_folder(folder))

    def read(table: DataTable) -> Iterator[DataRow]:
        with _speaking_of(archive, folder):
            yield from table.read()

    return {split: replace(table, read=partial(read, table)) for split, table in tables.items()}


@contextmanager
def _speaking_of(archive: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace(str(folder), str(archive))) from error


def _only_folder(folder: Path) -> Path:
    """An archive often holds one folder with everything in it."""
    inner = list(folder.iterdir())
    return _only_folder(inner[0]) if len(inner) == 1 and inner[0].is_dir() else folder


def _options(source: SourceRecipe) -> FileOptions:
    columns = None if source.columns is None else tuple(source.columns)
    return FileOptions(source.format, source.encoding, source.header, columns, source.sheet)


def _file_table(
    source: SourceRecipe, files: Sequence[Path], notes: Sequence[str] = (), like: Path | None = None
) -> DataTable:
    """The rows of one file, or of the parts of one; `like` is a file of another split, whose header is known."""
    options = _options(source)

    def options_of(file: Path) -> FileOptions:
        model = like or files[0]
        return options if file == model else replace(options, known=find_layout(model, options).names)

    def read() -> Iterator[DataRow]:
        for file in files:
            yield from read_rows(file, options_of(file))

    def find_notes() -> tuple[str, ...]:
        found = [note for file in files for note in find_layout(file, options_of(file)).notes]
        parts = [f"{len(files)} files are read as one: {_listed(files)}"] if len(files) > 1 else []
        return tuple(dict.fromkeys([*notes, *parts, *found]))

    return DataTable(_name_of(files), tuple(files), read, find_notes)


def _name_of(files: Sequence[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _listed(files: Sequence[Path], most: int = 8) -> str:
    names = [file.name for file in files[:most]]
    return ", ".join([*names, f"and {len(files) - most} more"] if len(files) > most else names)


# ---- one file ----


def _file_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    form = source.format if source.format != "auto" else detect_format(path, source.encoding)
    layout = find_json_layout(path, source.encoding) if form == "json" else None
    if layout is not None and layout.keys and (source.splits or layout.kind == "splits"):
        return _json_tables(source, path, layout.keys)
    if source.splits:
        raise DataError(
            f"data.path is the file {path}, and data.splits names {', '.join(source.splits.values())}",
            "data.splits names files inside a folder",
            f"Set data.path={path.parent}, or remove data.splits",
        )
    if form == "text" and (partners := find_partners(path)) is not None:
        raise _has_partners(path, partners)
    return {ALL: _file_table(source, [path])}


def _json_tables(source: SourceRecipe, path: Path, keys: Sequence[str]) -> dict[str, DataTable]:
    """The lists of one JSON file as splits: {"train": [...], "oos_train": [...], "test": [...]}."""
    chosen_keys: dict[str, list[str]] = {split: [key] for split, key in source.splits.items()}
    for key in () if source.splits else keys:
        chosen_keys.setdefault(split_of(key) or ALL, []).append(key)
    options = _options(source)

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


def _has_partners(path: Path, partners: ParallelSet) -> DataError:
    names = ", ".join(file.name for file in partners.files.values())
    own = {column: file.name for column, file in partners.files.items()}
    written = "{" + ", ".join(f"{column}: {name}" for column, name in own.items()) + "}"
    return DataError(
        f"{path} is one of several files whose lines belong together: {names}",
        f"Read together they have the columns {', '.join(partners.files)}",
        f"Give the folder {path.parent} instead, or add data.files='{written}' (data.files='{{text: {path.name}}}' "
        "reads this file alone)",
    )


# ---- a folder of files ----


def _folder_tables(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    if source.splits:
        named = {split: _named_files(folder, name, f"data.splits.{split}") for split, name in source.splits.items()}
        first = next(iter(named.values()))[0]
        return {split: _file_table(source, files, like=first) for split, files in named.items()}
    if source.format == "classes":
        return _class_tables(source, folder, is_stated=True) or _no_data(source, folder)
    tables, texts = find_data_files(folder, source.format, source.ids.values())
    if tables:
        _refuse_join(source, folder, tables)
        return _split_files(source, folder, tables)
    if source.format == "auto" and texts:
        return _text_tables(source, folder, texts)
    return _inner_tables(source, folder) or _no_data(source, folder)


def _split_files(source: SourceRecipe, folder: Path, files: Sequence[Path]) -> dict[str, DataTable]:
    """Tables by the split's word in their names; without any, they are one set or an open question."""
    if len(files) == 1 and files[0].suffix.lower() in ARCHIVE_ENDINGS:
        return _archive_tables(source, files[0])
    if len(files) == 1 and split_of(files[0].name) is None:
        return _file_tables(source, files[0])
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    others: list[Path] = []
    for file in files:
        split = split_of(file.relative_to(folder).as_posix())
        (others if split is None else found[split]).append(_unpacked(source, file))
    if not any(found.values()):
        classes = find_class_files(files, is_stated=False) if len(files) > 1 else None
        if classes is not None:
            return {ALL: _class_table(source, classes, folder.name)}
        return {ALL: _file_table(source, _one_set(source, list(files), folder, None))}
    sets = {split: _one_set(source, several, folder, split) for split, several in found.items() if several}
    if others and "train" not in sets:
        sets = {ALL: _training_files(source, folder, others, sets)} | sets
        others = []
    notes = [f"not read, because their names say no split: {_listed(others)}"] if others else []
    first = next(iter(sets.values()))[0]
    return {split: _file_table(source, chosen, notes, like=first) for split, chosen in sets.items()}


def _training_files(
    source: SourceRecipe, folder: Path, others: list[Path], sets: Mapping[str, Sequence[Path]]
) -> list[Path]:
    """Next to a test file, the file without a split's word is what to train on, if it has the same columns."""
    split, known = next((split, files[0]) for split, files in sets.items())
    if are_shards([file.name for file in others]) or are_parts([plain_file_name(file.name) for file in others]):
        own, columns = _columns_of(source, others[0]), _columns_of(source, known)
        if set(columns) <= set(own):
            return others
    shown = "; ".join(f"{_short(file, folder)} ({', '.join(_columns_of(source, file))})" for file in others[:8])
    raise DataError(
        f"{folder} has {_short(known, folder)} for {split}, none for train, and other files: {shown}",
        "What to train on has a split's word in its name, or the same columns",
        f"Name it: data.splits.train={_short(others[0], folder)} (data.splits then names every split), or set "
        f"data.path={others[0]}",
    )


def _unpacked(source: SourceRecipe, file: Path) -> Path:
    """The file itself, or the only table of an archive such as train.zip."""
    if file.suffix.lower() not in ARCHIVE_ENDINGS:
        return file
    inside = _only_folder(unpack(file))
    tables, texts = find_data_files(inside, source.format, source.ids.values())
    if len(tables or texts) != 1:
        names = ", ".join(list_folder(inside))
        raise DataError(
            f"{file} holds {names}", "Where there are several archives, each holds one table", f"Set data.path={file}"
        )
    return (tables or texts)[0]


def _one_set(source: SourceRecipe, files: list[Path], folder: Path, split: str | None) -> list[Path]:
    """The files themselves if they are one file or the parts of one; more are an open question."""
    if are_shards([file.name for file in files]):
        return files
    columns = {file: _columns_of(source, file) for file in files[:50]}
    if are_parts([plain_file_name(file.name) for file in files]) and len(set(columns.values())) == 1:
        return files
    shown = "; ".join(f"{_short(file, folder)} ({', '.join(names)})" for file, names in list(columns.items())[:8])
    shared = set.intersection(*(set(names) for names in columns.values()))
    example = _short(files[0], folder)
    change = (
        f"Set data.path={files[0]}, or name it: data.splits.train={example}"
        if split is None
        else f"Set data.splits.{split}={example} (data.splits then names every split)"
    )
    if shared and len(set(columns.values())) > 1:
        key = next(name for name in columns[files[0]] if name in shared)
        change = f"If they belong together by '{key}', join them first (pandas.merge): seqfit joins no tables. {change}"
    elif split is None and len(set(columns.values())) == 1:
        change += (
            "; where the file's name is the label, set data.format=classes; where all are one set, name them by a "
            "pattern: data.splits.train='*'"
        )
    raise DataError(
        f"{folder} has several files that could be {split or 'the data'}: {shown}",
        "A split is one file, or the numbered parts of one",
        change,
    )


def _short(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name


def _columns_of(source: SourceRecipe, file: Path) -> tuple[str, ...]:
    """The columns of the first row, for a comparison and a message."""
    try:
        first = next((row for row in read_rows(file, _options(source)) if not isinstance(row, BadRow)), {})
    except DataError:
        return ("columns not known",)
    return tuple(first)


def _refuse_join(source: SourceRecipe, folder: Path, tables: Sequence[Path]) -> None:
    """An error where a table names the files of a folder next to it, which hold the texts."""
    for inner in (one for one in sorted(folder.iterdir()) if one.is_dir()):
        names = {file.stem for file in inner.iterdir() if ending(file) in ("", ".txt", ".text")}
        if len(names) < 20:
            continue
        for table in tables:
            rows = (row for row, _ in zip(read_rows(table, _options(source)), range(_JOIN_SAMPLE), strict=False))
            matches: dict[str, int] = {}
            for row in rows:
                for column, value in row.items():
                    if isinstance(value, str) and (value in names or Path(value).stem in names):
                        matches[column] = matches.get(column, 0) + 1
            column = max(matches, key=lambda name: matches[name], default="")
            if matches.get(column, 0) >= 5:
                raise DataError(
                    f"{table.name} names the files of {inner.name}/ in its column '{column}'",
                    "A row is read from one file",
                    f"Put the texts into the table: table['text'] = [open(f'{inner.name}/{{name}}.txt').read() for "
                    f"name in table['{column}']] with pandas, and save it as CSV",
                )


def _named_files(folder: Path, name: str, field: str) -> list[Path]:
    """The file, or the files where the name has a * in it."""
    if "*" not in name:
        return [require_file(folder / name, field)]
    files = [file for file in sorted(folder.glob(name)) if file.is_file() and may_be_data(file)]
    if not files:
        raise DataError(
            f"{field} is '{name}', which matches nothing in {folder}",
            f"The folder has: {', '.join(list_folder(folder))}",
            f"Set {field} to one of them or to a pattern such as train-*.parquet",
        )
    return files


def _no_data(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    names = list_folder(folder)
    raise DataError(
        f"{folder} has no data files" + (f" of format {source.format}" if source.format != "auto" else ""),
        f"It has: {', '.join(names) or 'nothing'}; data files are tables ({', '.join(ENDINGS)}), text files whose "
        "lines belong together, or a file or folder of texts per class",
        "Set data.path to a file or folder that has them, or say how they belong together: data.format=classes or "
        "data.files='{source: a.txt, target: b.txt}'",
    )


# ---- folders of text files ----


def _text_tables(source: SourceRecipe, folder: Path, texts: Sequence[Path]) -> dict[str, DataTable]:
    """Text files of any ending: parallel, one per class, or tables by their content."""
    parallel = by_split(find_parallel(texts), folder)
    if parallel:
        used = {file for one in parallel.values() for file in one.files.values()}
        left = [file for file in texts if file not in used and not ABOUT_THE_LABELS.fullmatch(file.name.lower())]
        return {split: _parallel_table(source, one, left) for split, one in parallel.items()}
    texts = [file for file in texts if not ABOUT_THE_LABELS.fullmatch(file.name.lower())] or list(texts)
    by_splits = _classes_by_split(source, texts, is_stated=False)
    if by_splits:
        return by_splits
    classes = find_class_files(texts, is_stated=False)
    if classes is not None:
        return {ALL: _class_table(source, classes, folder.name)}
    formats = {file: recognise_format(file, source.encoding) for file in texts}
    tables = [file for file, form in formats.items() if form != "text"]
    splits = [split_of(file.name) for file in texts]
    if tables or len(texts) == 1 or (None not in splits and len(set(splits)) == len(splits)):
        return _split_files(source, folder, tables or texts)
    inner = _inner_tables(source, folder)
    if inner:
        return inner
    shown = _listed(texts)
    raise DataError(
        f"{folder} has several text files: {shown}",
        "They are read where the names or equal numbers of lines say how they belong together",
        "Where each is a class, set data.format=classes; where line n of one belongs to line n of another, "
        f"data.files='{{source: {texts[0].name}, target: {texts[1].name}}}'",
    )


def _inner_tables(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    """What subfolders hold: splits, classes, or all of it in one of them."""
    classes = _class_tables(source, folder, is_stated=False)
    if classes:
        return classes
    inner = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith((".", "__"))]
    splits = [one for one in inner if split_of(one.name) is not None]
    if splits:
        found: dict[str, DataTable] = {}
        for one in splits:
            tables = _folder_tables(source, one)
            if len(tables) > 1:
                raise DataError(
                    f"{one} has the splits {', '.join(tables)}",
                    "A folder that is called like a split is one",
                    f"Set data.path={one}, or name the files: data.splits.train=...",
                )
            found[split_of(one.name) or ALL] = next(iter(tables.values()))
        return found
    holding = [
        one
        for one in inner
        if any(find_data_files(one, source.format, source.ids.values()))
        or any(child.is_dir() for child in one.iterdir())
    ]
    if len(holding) > 1:
        names = ", ".join(f"{one.name}/" for one in holding[:8])
        raise DataError(
            f"{folder} has several folders that may hold the data: {names}",
            "One of them is read, or files in the folder itself",
            f"Set data.path={holding[0]}; data.format=classes takes the folders for classes",
        )
    return _folder_tables(source, holding[0]) if holding else {}


def _class_tables(source: SourceRecipe, folder: Path, *, is_stated: bool) -> dict[str, DataTable]:
    """Classes in the folder, or in its folders train and test."""
    own = find_class_folders(folder, is_stated=is_stated)
    if own is None and is_stated:
        tables, texts = find_data_files(folder, "auto")
        by_splits = _classes_by_split(source, tables or texts, is_stated=True)
        if by_splits:
            return by_splits
        own = find_class_files(tables or texts, is_stated=True)
    if own is not None:
        return {ALL: _class_table(source, own, folder.name)}
    splits = {split_of(one.name): one for one in sorted(folder.iterdir()) if one.is_dir()}
    found = {split: find_class_folders(one, is_stated=is_stated) for split, one in splits.items() if split is not None}
    return {split: _class_table(source, one, split) for split, one in found.items() if one is not None}


def _classes_by_split(source: SourceRecipe, files: Sequence[Path], *, is_stated: bool) -> dict[str, DataTable]:
    """train_neg.txt, train_pos.txt, test_neg.txt, test_pos.txt: a file per class and split; else nothing."""
    splits: dict[str | None, list[Path]] = {}
    for file in files:
        splits.setdefault(split_of(file.name), []).append(file)
    if None in splits or len(splits) < 2:
        return {}
    found = {split: find_class_files(own, is_stated=is_stated) for split, own in splits.items()}
    labels = [None if classes is None else set(classes.files) for classes in found.values()]
    if labels[0] is None or any(one != labels[0] for one in labels):
        return {}
    return {str(split): _class_table(source, one, str(split)) for split, one in found.items() if one is not None}


def _class_table(source: SourceRecipe, found: ClassFiles, name: str) -> DataTable:
    options = _options(source)
    return DataTable(name, found.all_files, lambda: read_classes(found, options), lambda: layout_notes(found, options))


# ---- parallel text ----


def _parallel_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    folder = path if path.is_dir() else path.parent
    if source.languages is None:
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and may_be_data(file)]
        sets = find_parallel(files, any_words=True)
    elif not path.is_dir():
        return {ALL: _parallel_table(source, stem_set(path, source.languages))}
    elif source.splits:
        stems = {split: stem_set(folder / name, source.languages) for split, name in source.splits.items()}
        return {split: _parallel_table(source, one) for split, one in stems.items()}
    else:
        sets = language_sets(folder, source.languages)
    if not sets:
        raise _no_pair(folder, source.languages)
    return {split: _parallel_table(source, one) for split, one in by_split(sets, folder).items()}


def _parallel_table(source: SourceRecipe, found: ParallelSet, others: Sequence[Path] = ()) -> DataTable:
    def find_notes() -> tuple[str, ...]:
        shown = ", ".join(f"{column} ({file.name})" for column, file in found.files.items())
        notes = [] if source.files or source.languages else [f"line n of these files is row n: {shown}"]
        left = [*found.left_out, *(file.name for file in others if file.name not in found.left_out)]
        if left:
            notes.append(f"not read: {', '.join(left[:8])}; data.files names the files to read")
        encodings = [find_encoding(file, source.encoding).describe(file.name) for file in found.files.values()]
        return (*notes, *filter(None, encodings))

    files = tuple(found.files.values())
    name = found.stem.removesuffix(".*") or _name_of(files)
    return DataTable(name, files, lambda: read_parallel(found.files, source.encoding), find_notes)


def _no_pair(folder: Path, languages: tuple[str, str] | None) -> DataError:
    ends = f"end in .{languages[0]} and .{languages[1]}" if languages else "have equally many lines and a common name"
    return DataError(
        f"{folder} has no files that {ends}",
        f"It has: {', '.join(list_folder(folder))}",
        "Set data.languages to two endings that both occur"
        if languages
        else "Name them: data.files='{source: a.txt, target: b.txt}'",
    )


# ---- the Hub ----


def _hub_tables(source: SourceRecipe) -> dict[str, DataTable]:
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
    return {
        split: DataTable(
            f"{name}, {own}", tuple(loaded[own].files), loaded[own].rows, partial(getattr, loaded[own], "notes")
        )
        for split, own in wanted.items()
    }


def _hub_names(source: SourceRecipe, name: str, own_names: list[str]) -> dict[str, str]:
    """Our split -> the data set's name for it."""
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
                "One of them is read",
                f"Set data.splits.{split} to one of them (data.splits then names every split)",
            )
        if split is not None:
            found[split] = own
    if not found:
        raise DataError(
            f"{name} has the splits {', '.join(own_names)}",
            "None is called train, validation or test",
            f"Name them: data.splits.train={own_names[0]}",
        )
    return found
