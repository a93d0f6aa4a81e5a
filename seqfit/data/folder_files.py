"""Which files of a folder hold data, and which belong together.

In: a folder. Out: its tables and its text files, without READMEs, licences, scripts and files about the labels. The one
idea: names decide here, and content later.

    train.csv test.csv README.md prepare.py labels.json     -> tables train.csv, test.csv
    part-1.csv part-2.csv                                   -> parts of one set
    dev-v1.1.json dev-v2.0.json                             -> no parts: versions
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from seqfit.data.archives import ARCHIVE_ENDINGS, is_archive
from seqfit.data.layout import ENDINGS, ending

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
    """Files that can hold rows, by ending: tables of a format, and text files of any ending."""
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
    """Whether nothing in the file's name speaks against it; `ids` are files that only list ids."""
    name = file.name.lower()
    return not (
        name.startswith((".", "_", *_ABOUT_STEMS))
        or file.name in ids
        or name in _ABOUT_THE_DATA
        or ending(file) in _NO_DATA
        or file.stat().st_size == 0
    )


def are_shards(names: Sequence[str]) -> bool:
    """Whether the names are one but for -00000-of-00002."""
    return len({_SHARD.sub("", name) for name in names}) == 1


def are_parts(names: Sequence[str]) -> bool:
    """Whether names differ in one running number or a date: part-1.csv part-2.csv, 2019.csv 2020.csv.

    Numbers of versions, folds or seeds are no parts, and neither are sizes such as train_100 and train_1000.
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
