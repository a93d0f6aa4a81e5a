"""Which files of a folder hold data and belong together: parallel text, one file or folder per class, parts of a table.

In: a folder. Out: groups of files. The one idea: files that belong together have the same name except for one part;
that part is a column (parallel text), a label (classes) or a number (parts).

    parallel text: the files have equally many lines, and line n of each is row n
    dev.src dev.ref0 dev.ref1                   -> validation: ref0, ref1, src
    europarl.de-en.de europarl.de-en.en         -> all: de, en

    classes: a file holds one text per line, a folder one text per file
    rt-polarity.pos rt-polarity.neg             -> {"text": "a fine film", "label": "pos"}, ...
    sport/1.txt sport/2.txt news/7.txt          -> {"text": "the whole file", "label": "sport"}, ...
    Fake/1.txt Fake_titles/1.txt ...            -> {"text": ..., "titles": ..., "label": "Fake"}

    tables: READMEs, licences, scripts and lists of labels are not data
    train.csv test.csv README.md labels.json    -> tables train.csv, test.csv
    part-1.csv part-2.csv                       -> parts of one table
    dev-v1.1.json dev-v2.0.json                 -> versions, not parts
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqfit.data.archives import ARCHIVE_ENDINGS, COMPRESSED_ENDINGS, is_archive, plain_file_name, read_head
from seqfit.data.content import recognise_format
from seqfit.data.formats import mark_broken, read_rows
from seqfit.data.layout import ENDINGS, FileOptions, ending, find_layout
from seqfit.data.name_words import split_of
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.text_files import count_lines, find_encoding, read_chunks, recognise
from seqfit.errors import DataError
from seqfit.paths import list_folder, require_file

ALL = "all"
_CLASS_WORDS = """
    pos neg neu positive negative neutral ham spam good bad fake real satire true false yes no toxic nontoxic hate
    nohate offensive sarcastic sarcasm nonsarcastic irony subjective objective subj obj happy sad anger joy fear
"""
CLASS_WORDS = frozenset(_CLASS_WORDS.split())
_SIDE_WORDS = """
    src tgt trg source target ref reference orig original simp simple complex normal formal informal input output in out
    question questions answer answers text texts sentence sentences tweets label labels query sql nl code anno comment
    x y article articles document documents summary summaries abstract title titles body context error correct corrected
"""
SIDE_WORDS = frozenset(_SIDE_WORDS.split())
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")
_NOT_TEXT = frozenset(("vocab", "vocabulary", "dict", "codes", "mapping", "classes", "alignments", "log"))


@dataclass(frozen=True)
class ParallelSet:
    """Files that belong together: their common name and column -> file."""

    stem: str
    files: dict[str, Path]
    left_out: tuple[str, ...] = ()  # further forms of one of them, such as dev.spellchecked.src


def find_parallel(files: Sequence[Path], *, any_words: bool = False) -> list[ParallelSet]:
    """The sets of files that belong together, by name and number of lines; `any_words` accepts any names."""
    texts = [file for file in files if not _NOT_TEXT & set(_words(plain_file_name(file.name)))]
    groups: dict[tuple[str, str], dict[str, Path]] = {}
    for file in texts:
        for key, part in _readings(plain_file_name(file.name)):
            groups.setdefault(key, {})[part] = file
    found: list[ParallelSet] = []
    taken: set[Path] = set()
    for (before, after), parts in sorted(groups.items(), key=lambda item: (-len(item[1]), -len(item[0][0]))):
        free = {part: file for part, file in parts.items() if file not in taken}
        if len(free) < 2 or not (any_words or _belong_together(free, before, after)):
            continue
        counts = {part: count_lines(file) for part, file in free.items()}
        same = [part for part in free if list(counts.values()).count(counts[part]) > 1]
        if not same or max(counts.values()) < 1:
            continue
        most = max((counts[part] for part in same), key=lambda count: (list(counts.values()).count(count), count))
        chosen = {part: free[part] for part in sorted(free) if counts[part] == most}
        variants = tuple(part for part in chosen if any(part.endswith(f".{other}") for other in chosen))
        taken.update(chosen.values())
        columns = {part: file for part, file in chosen.items() if part not in variants}
        if len(columns) > 1:
            found.append(ParallelSet(f"{before}*{after}", columns, tuple(chosen[part].name for part in variants)))
    return found


def _readings(name: str) -> Iterator[tuple[tuple[str, str], str]]:
    """What the names of a set may have in common, before and after the part that differs, and that part."""
    pieces = re.split(r"([._-])", name)
    for at in range(0, len(pieces), 2):
        part = pieces[at]
        if part and not part.isdecimal() and split_of(part) is None and part != "txt":
            yield ("".join(pieces[:at]), "".join(pieces[at + 1 :])), part
    for at in range(1, len(pieces) - 2, 2):
        rest = "".join(pieces[at + 1 :])
        if pieces[at] == "." and not pieces[at + 1].isdecimal() and split_of(rest) is None and not rest.endswith("txt"):
            yield ("".join(pieces[: at + 1]), ""), rest


def _belong_together(parts: Mapping[str, Path], before: str, after: str) -> bool:
    """Whether the parts can be the sides of one text: languages, source and target, or endings of a common name."""
    words = {re.sub(r"\d+$", "", part.split(".")[0].lower()) for part in parts}
    if words & CLASS_WORDS:
        return False
    is_ending = before.endswith(".") and after == ""
    return is_ending or len(words & SIDE_WORDS) > 1 or all(map(_LANGUAGE.fullmatch, parts))


def _words(name: str) -> list[str]:
    return re.split(r"[^a-z]+", name.lower())


def find_partners(file: Path) -> ParallelSet | None:
    """The files next to one that belong to it: dev.src has dev.ref0."""
    others = [other for other in sorted(file.parent.iterdir()) if other.is_file() and not other.name.startswith(".")]
    return next((one for one in find_parallel(others) if file in one.files.values()), None)


def by_split(sets: Iterable[ParallelSet], folder: Path) -> dict[str, ParallelSet]:
    """Split -> its set; sets whose names say no split are ignored if others do."""
    found: dict[str, list[ParallelSet]] = {}
    for one in sets:
        found.setdefault(split_of(one.stem) or ALL, []).append(one)
    if set(found) != {ALL}:
        found.pop(ALL, None)
    for split, several in found.items():
        if len(several) > 1:
            names = "; ".join(" and ".join(file.name for file in one.files.values()) for one in several)
            raise DataError(
                f"{folder} has several parallel texts" + (f" for {split}" if split != ALL else "") + f": {names}",
                "One of them is read",
                f"Name its files, for example data.files='{format_files(several[0].files)}'",
            )
    return {split: several[0] for split, several in found.items()}


def format_files(files: Mapping[str, Path]) -> str:
    """As data.files takes them: '{src: dev.src, ref0: dev.ref0}'."""
    return "{" + ", ".join(f"{column}: {file.name}" for column, file in files.items()) + "}"


def stated_files(folder: Path, files: Mapping[str, str], splits: Mapping[str, str]) -> dict[str, dict[str, Path]]:
    """data.files as split -> column -> file; a * in the names stands for the split's word."""
    if not any("*" in name for name in files.values()):
        return {ALL: {column: require_file(folder / name, f"data.files.{column}") for column, name in files.items()}}
    words = {split: {word} for split, word in splits.items()} or _words_for_star(folder, files)
    found: dict[str, dict[str, Path]] = {}
    for split, chosen in words.items():
        if len(chosen) > 1:
            raise DataError(
                f"data.files with * matches several words for {split}: {', '.join(sorted(chosen))}",
                "A split is read from one of them",
                f"Choose one, for example data.splits.{split}={min(chosen)} (data.splits then has to name every split)",
            )
        word = next(iter(chosen))
        found[split] = {
            column: require_file(folder / name.replace("*", word), f"data.files.{column}")
            for column, name in files.items()
        }
    return found


def _words_for_star(folder: Path, files: Mapping[str, str]) -> dict[str, set[str]]:
    matching: list[set[str]] = []
    for name in files.values():
        before, _, after = name.partition("*")
        paths = (path.relative_to(folder).as_posix() for path in folder.glob(name))
        matching.append({path[len(before) : len(path) - len(after)] for path in paths})
    words = set.intersection(*matching)
    if not words:
        raise DataError(
            f"data.files has the patterns {', '.join(files.values())}",
            f"No replacement for * matches a file in all of them; the folder has: {', '.join(list_folder(folder))}",
            "Correct the patterns, or name the files without *",
        )
    found: dict[str, set[str]] = {}
    for word in words:
        found.setdefault(split_of(word) or ALL, set()).add(word)
    if set(found) != {ALL}:
        found.pop(ALL, None)
    return found


def language_sets(folder: Path, languages: tuple[str, str]) -> list[ParallelSet]:
    """The sets whose files differ in these two parts: train.en and train.de, x.en.txt and x.de.txt."""
    groups: dict[tuple[str, str], dict[str, Path]] = {}
    for file in sorted(folder.iterdir()):
        if file.is_file():
            for key, part in _readings(plain_file_name(file.name)):
                if part in languages:
                    groups.setdefault(key, {})[part] = file
    return [
        ParallelSet(f"{before}*{after}", {language: parts[language] for language in languages})
        for (before, after), parts in sorted(groups.items())
        if len(parts) == 2
    ]


def stem_set(path: Path, languages: tuple[str, str]) -> ParallelSet:
    """data.path=corpus/train (or train.en) stands for corpus/train.en and corpus/train.de."""
    name = plain_file_name(path.name)
    stem = next((name.removesuffix(f".{one}") for one in languages if name.endswith(f".{one}")), name)
    files: dict[str, Path] = {}
    for one in languages:
        file = path.parent / f"{stem}.{one}"
        packed = [other for end in COMPRESSED_ENDINGS if (other := path.parent / f"{file.name}{end}").exists()]
        files[one] = packed[0] if packed else require_file(file, "data.path, data.splits or data.languages")
    return ParallelSet(stem, files)


_UNLABELLED = frozenset(("unsup", "unlabeled", "unlabelled", "unsupervised"))
_TEXT_ENDINGS = ("", ".txt", ".text")


@dataclass(frozen=True)
class ClassFiles:
    """Label -> its files; `has_whole_texts`: each file is one text; `companions`: endings of folders with columns."""

    files: dict[str, tuple[Path, ...]]
    has_whole_texts: bool
    companions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def all_files(self) -> tuple[Path, ...]:
        own = [file for files in self.files.values() for file in files]
        return tuple(own + [_companion(file, word) for file in own for word in self.companions])

    def describe(self) -> str:
        if not self.has_whole_texts:
            return f"one file per class, one text per line; the label is the file's name: {', '.join(self.files)}"
        counts = ", ".join(f"{label} ({len(files)})" for label, files in self.files.items())
        more = f"; folders that end in _{', _'.join(self.companions)} are columns" if self.companions else ""
        left = f"; not read: {', '.join(self.left_out)}" if self.left_out else ""
        return f"one folder per class, one text per file; the label is the folder's name: {counts}{more}{left}"


def find_class_files(files: Sequence[Path], *, is_stated: bool) -> ClassFiles | None:
    """One file per class, if the names or the recipe say so."""
    if len(files) < 2:
        return None
    labels = labels_of([plain_file_name(file.name) for file in files])
    are_classes = len(set(labels)) == len(labels) and all(CLASS_WORDS & set(_words(label)) for label in labels)
    # A text file with separated fields is a table, whatever its name.
    hold_texts = (ending(file) in ENDINGS or recognise_format(file) != "separated" for file in files)
    if not is_stated and not (are_classes and all(hold_texts)):
        return None
    return ClassFiles({label: (file,) for label, file in zip(labels, files, strict=True)}, False)


def labels_of(names: Sequence[str]) -> list[str]:
    """The part of each name that differs: rt-polarity.pos, rt-polarity.neg -> pos, neg; a.txt, b.txt -> a, b."""
    before = _common(names)
    before = before[: max(before.rfind(char) for char in "._-") + 1]
    after = _common([name[::-1] for name in names])[::-1]
    after = after[after.find(".") :] if "." in after else ""
    return [name[len(before) : len(name) - len(after)] or name for name in names]


def _common(names: Sequence[str]) -> str:
    same = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False))
    return "".join(chars[0] for chars in same)


def find_class_folders(folder: Path, *, is_stated: bool) -> ClassFiles | None:
    inner = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith((".", "__"))]
    left_out = tuple(one.name for one in inner if one.name.lower() in _UNLABELLED)
    texts = {one.name: _text_files(one) for one in inner if one.name not in left_out}
    texts = {label: files for label, files in texts.items() if files}
    if len(texts) < 2 or any(split_of(label) is not None for label in texts):
        return None
    if not is_stated and min(map(len, texts.values())) < 2:
        return None
    companions = _find_companions(texts)
    endings = tuple(f"_{word}" for word in companions)
    own = {label: files for label, files in texts.items() if not label.endswith(endings)}
    if not is_stated and sum(bool(SIDE_WORDS & set(_words(label))) for label in own) > 1:
        name = next(iter(own))
        raise DataError(
            f"{folder} has the folders {', '.join(own)}, which sound like source and target, not like classes",
            "Parallel text is read from one file per side, in which line n is row n",
            f"Join the files of each folder in the same order, cat {name}/* > all.{name}; if the folders are "
            "classes, set data.format=classes",
        )
    return ClassFiles(own, True, companions, left_out)


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


def read_classes(found: ClassFiles, options: FileOptions) -> Iterator[DataRow]:
    if found.has_whole_texts:
        yield from mark_broken(_read_whole(found, options.encoding), "in the encoding of the other files")
        return
    for label, (file,) in found.files.items():
        for row in read_rows(file, class_options(file, options)):
            if not isinstance(row, BadRow):
                row = ({"text": next(iter(row.values()))} if len(row) == 1 else row) | {"label": label}
            yield row


def class_options(file: Path, options: FileOptions) -> FileOptions:
    """A table is read as one, any other file as one text per line."""
    return replace(options, format="auto" if ending(file) in ENDINGS else "text")


def _read_whole(found: ClassFiles, encoding: str) -> Iterator[DataRow]:
    """Each file as one text. A short text says little about its encoding, so it is found from all files together."""
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
    sample = b"\n".join(read_head(file, 4096) for file in itertools.islice(others, 200))
    return recognise(sample) if sample else "utf-8"


def layout_notes(found: ClassFiles, options: FileOptions) -> tuple[str, ...]:
    if found.has_whole_texts:
        encoding = common_encoding(found) if options.encoding == "auto" else "utf-8"
        if encoding == "utf-8":
            return (found.describe(),)
        file = next(file for file in found.all_files if find_encoding(file).is_guessed)
        words = [word[:20] for word in _whole(file, encoding).split() if not word.isascii()][:3]
        shown = f" ({', '.join(words)})" if words else ""
        other = f"files that are not UTF-8 are read as {encoding}{shown}; set data.encoding if that is wrong"
        return (found.describe(), other)
    notes = [note for (file,) in found.files.values() for note in find_layout(file, class_options(file, options)).notes]
    return (found.describe(), *notes)


_ABOUT_THE_DATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "requirements.txt"}
ABOUT_THE_LABELS = re.compile(
    r"(classes|mapping|labels?|label_?(map|names|list)|id2label|label2id|vocab|config|meta(data)?)\.\w+"
)
_ABOUT_STEMS = ("readme", "license", "licence", "copying", "citation", "notice", "changelog", "authors", "makefile")
_OTHER_ENDINGS = """
    .py .pyc .ipynb .sh .bat .r .pl .js .ts .c .cpp .h .java .go .rs .md .rst .yaml .yml .toml .cfg .ini .html .htm .css
    .pdf .doc .docx .ppt .pptx .png .jpg .jpeg .gif .svg .bib .tex .log .lock .pkl .pickle .pt .pth .bin .safetensors
    .model .npy .npz .h5 .db .sqlite .wav .mp3 .mp4 .sha256 .md5 .ann .xml .dtd .xsd
"""
_NO_DATA = frozenset(_OTHER_ENDINGS.split())
_SHARD = re.compile(r"-\d{5}-of-\d{5}")
_DATE = re.compile(r"(19|20)\d\d([-_.]?\d\d){0,2}(?!\d)")
_NOT_PARTS = re.compile(r"(^|[^a-z])(v|ver|version|fold|seed|run|exp|k|top|shot|n)[-_.]?\d", re.IGNORECASE)


def find_data_files(folder: Path, file_format: str, ids: Collection[str] = ()) -> tuple[list[Path], list[Path]]:
    """Files that can hold rows, by extension: tables of a format, and text files with any other extension."""
    wanted = {"squad": "json", "jsonl": "json"}.get(file_format, file_format)
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and may_be_data(file, ids)]
    tables = [
        file
        for file in files
        if (ending(file) in ENDINGS and (file_format == "auto" or ENDINGS[ending(file)] in (wanted, file_format)))
        or (file_format == "auto" and file.suffix.lower() in ARCHIVE_ENDINGS and is_archive(file))
    ]
    tables = [file for file in tables if not ABOUT_THE_LABELS.fullmatch(file.name.lower())] or tables
    return tables, [file for file in files if ending(file) not in ENDINGS and file not in tables]


def may_be_data(file: Path, ids: Collection[str] = ()) -> bool:
    """Whether the file's name allows it; `ids` are files that only list ids."""
    name = file.name.lower()
    return not (
        name.startswith((".", "_", *_ABOUT_STEMS))
        or file.name in ids
        or name in _ABOUT_THE_DATA
        or ending(file) in _NO_DATA
        or file.stat().st_size == 0
    )


def are_shards(names: Sequence[str]) -> bool:
    """Whether the names differ only in -00000-of-00002."""
    return len({_SHARD.sub("", name) for name in names}) == 1


def are_parts(names: Sequence[str]) -> bool:
    """Whether names differ in one consecutive number or a date: part-1.csv part-2.csv, 2019.csv 2020.csv.

    Versions, folds, seeds and sizes such as train_100 and train_1000 are not parts.
    """
    if any(_NOT_PARTS.search(name) for name in names):
        return False
    if len({_DATE.sub("#", name) for name in names}) == 1:
        return True
    if len({re.sub(r"\d+", "#", name) for name in names}) != 1:
        return False
    numbers = list(zip(*(map(int, re.findall(r"\d+", name)) for name in names), strict=True))
    varying = [sorted(column) for column in numbers if len(set(column)) > 1]
    return len(varying) == 1 and varying[0] == list(range(varying[0][0], varying[0][0] + len(names)))
