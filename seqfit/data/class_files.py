"""A file or a folder of texts per class: the name is the label.

In: a folder. Out: per class its files, and rows. The one idea: a file holds one text per line, a folder one text per
file.

    pos.txt neg.txt                    -> {"text": "a fine film", "label": "pos"}, ...
    rt-polarity.pos rt-polarity.neg    -> the part of the name that differs is the label
    sport/1.txt sport/2.txt news/7.txt -> {"text": "the whole file", "label": "sport"}, ...
    Fake/1.txt Fake_titles/1.txt ...   -> {"text": ..., "titles": ..., "label": "Fake"}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqfit.data.archives import plain_name, read_head
from seqfit.data.content import recognise_format
from seqfit.data.encoding import find_encoding, recognise
from seqfit.data.parallel_files import CLASS_WORDS, SIDE_WORDS
from seqfit.data.rows import BadRow, Row
from seqfit.data.sources import ENDINGS, FileOptions, ending, find_layout, mark_broken, read_rows
from seqfit.data.split_words import split_of
from seqfit.data.text_files import read_chunks
from seqfit.errors import DataError, complain

_UNLABELLED = frozenset(("unsup", "unlabeled", "unlabelled", "unsupervised"))
_TEXT_ENDINGS = ("", ".txt", ".text")
_SEVERAL = 2  # files of one text each that make a folder a class
_SAMPLE_FILES = 200


@dataclass(frozen=True)
class ClassFiles:
    """Label -> its files; `has_whole_texts`: each file is one text; `companions`: endings of folders with columns."""

    files: dict[str, tuple[Path, ...]]
    has_whole_texts: bool
    companions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def all_files(self) -> tuple[Path, ...]:
        """Every file, those of companions included."""
        own = [file for files in self.files.values() for file in files]
        return tuple(own + [_companion(file, word) for file in own for word in self.companions])

    def describe(self) -> str:
        """A note that says how the label was found."""
        if not self.has_whole_texts:
            return f"one file per class, one text per line; the label is the file's name: {', '.join(self.files)}"
        counts = ", ".join(f"{label} ({len(files)})" for label, files in self.files.items())
        more = f"; the folders with the ending _{', _'.join(self.companions)} are columns" if self.companions else ""
        left = f"; not read: {', '.join(self.left_out)}" if self.left_out else ""
        return f"one folder per class, one text per file; the label is the folder's name: {counts}{more}{left}"


def find_class_files(files: Sequence[Path], *, is_stated: bool) -> ClassFiles | None:
    """A file per class, where the names say so or the recipe does."""
    if len(files) < 2:
        return None
    labels = labels_of([plain_name(file.name) for file in files])
    are_classes = len(set(labels)) == len(labels) and all(CLASS_WORDS & set(_words(label)) for label in labels)
    if not is_stated and not (are_classes and all(map(_holds_texts, files))):
        return None
    return ClassFiles({label: (file,) for label, file in zip(labels, files, strict=True)}, False)


def _holds_texts(file: Path) -> bool:
    """A text per line; a file of fields is a table, whatever it is called."""
    return ending(file) in ENDINGS or recognise_format(file) != "separated"


def _words(label: str) -> list[str]:
    return re.split(r"[^a-z]+", label.lower())


def labels_of(names: Sequence[str]) -> list[str]:
    """The part of each name that differs: rt-polarity.pos, rt-polarity.neg -> pos, neg; a.txt, b.txt -> a, b."""
    before = _common(names)
    before = before[: max((before.rfind(char) for char in "._-"), default=-1) + 1]
    after = _common([name[::-1] for name in names])[::-1]
    after = after[after.find(".") :] if "." in after else ""
    return [name[len(before) : len(name) - len(after)] or name for name in names]


def _common(names: Sequence[str]) -> str:
    """The characters that all names begin with."""
    same = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False))
    return "".join(chars[0] for chars in same)


def find_class_folders(folder: Path, *, is_stated: bool) -> ClassFiles | None:
    """A folder per class, each with texts of one file each."""
    inner = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith((".", "__"))]
    left_out = tuple(one.name for one in inner if one.name.lower() in _UNLABELLED)
    texts = {one.name: _text_files(one) for one in inner if one.name not in left_out}
    texts = {label: files for label, files in texts.items() if files}
    if len(texts) < 2 or any(split_of(label) is not None for label in texts):
        return None
    if not is_stated and min(map(len, texts.values())) < _SEVERAL:
        return None
    companions = _find_companions(texts)
    endings = tuple(f"_{word}" for word in companions)
    own = {label: files for label, files in texts.items() if not label.endswith(endings)}
    if not is_stated and sum(bool(SIDE_WORDS & set(_words(label))) for label in own) > 1:
        raise _are_sides(folder, list(own))
    return ClassFiles(own, True, companions, left_out)


def _are_sides(folder: Path, names: list[str]) -> DataError:
    return DataError(
        complain(
            f"{folder} has the folders {', '.join(names)}, which sound like the sides of one text and not like classes",
            "Lines that belong together are read from two files, each with all lines of its side",
            f"Join the files of each folder in the same order: cat {names[0]}/* > all.{names[0]} (data.format=classes "
            "takes the folders for classes)",
        )
    )


def _text_files(folder: Path) -> tuple[Path, ...]:
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith("."))
    return tuple(file for file in files if file.suffix.lower() in _TEXT_ENDINGS or file.stem.isdecimal())


def _find_companions(texts: Mapping[str, Sequence[Path]]) -> tuple[str, ...]:
    """Endings such as 'titles' where every folder X has a folder X_titles with the same file names."""
    names = {label: {file.name for file in files} for label, files in texts.items()}
    words = {label.rpartition("_")[2] for label in texts if label.rpartition("_")[0] in texts}
    own = [label for label in texts if label.rpartition("_")[2] not in words]
    return tuple(sorted(word for word in words if all(names[one] <= names.get(f"{one}_{word}", set()) for one in own)))


def _companion(file: Path, word: str) -> Path:
    return file.parent.with_name(f"{file.parent.name}_{word}") / file.name


def read_classes(found: ClassFiles, options: FileOptions) -> Iterator[Row]:
    """Rows with the columns text and label."""
    if found.has_whole_texts:
        yield from mark_broken(_read_whole(found, options.encoding), "in the encoding of the others")
        return
    for label, (file,) in found.files.items():
        for row in read_rows(file, class_options(file, options)):
            yield row if isinstance(row, BadRow) else _only_text(row) | {"label": label}


def class_options(file: Path, options: FileOptions) -> FileOptions:
    """A table is read as one, any other file as one text per line."""
    return replace(options, format="auto" if ending(file) in ENDINGS else "text")


def _only_text(row: Row) -> Row:
    return {"text": next(iter(row.values()))} if len(row) == 1 else row


def _read_whole(found: ClassFiles, encoding: str) -> Iterator[Row]:
    """Each file as one text. A short text says little about its encoding: that of all files together is taken."""
    common = common_encoding(found) if encoding == "auto" else encoding
    for label, files in found.files.items():
        for file in files:
            texts = {"text": file} | {word: _companion(file, word) for word in found.companions}
            yield {column: _whole(path, common) for column, path in texts.items()} | {"label": label}


def _whole(path: Path, common: str) -> str:
    own = find_encoding(path)
    return "".join(read_chunks(path, "auto" if own.name.startswith("utf") else common, keep_broken=True)).strip()


def common_encoding(found: ClassFiles) -> str:
    """The encoding of the files that are not UTF-8, recognised from many of them at once."""
    others = (file for file in found.all_files if find_encoding(file).is_guessed and not find_encoding(file).is_wide)
    sample = b"\n".join(read_head(file, 4096) for file in itertools.islice(others, _SAMPLE_FILES))
    return recognise(sample) if sample else "utf-8"


def _tell_encoding(found: ClassFiles, encoding: str) -> str:
    file = next(file for file in found.all_files if find_encoding(file).is_guessed)
    words = [word[:20] for word in _whole(file, encoding).split() if not word.isascii()][:3]
    shown = f" ({', '.join(words)})" if words else ""
    return f"files that are not UTF-8 are read as {encoding}{shown}; set data.encoding if that is wrong"


def layout_notes(found: ClassFiles, options: FileOptions) -> tuple[str, ...]:
    """What is to be known about the files, and how the label was found."""
    if found.has_whole_texts:
        encoding = common_encoding(found) if options.encoding == "auto" else "utf-8"
        other = [] if encoding == "utf-8" else [_tell_encoding(found, encoding)]
        return (found.describe(), *other)
    notes = [note for (file,) in found.files.values() for note in find_layout(file, class_options(file, options)).notes]
    return (found.describe(), *notes)
