from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.data.archives import is_archive, open_bytes, plain_file_name, unpack
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe

ROWS = b"text,label\nfine film,1\nbad film,0\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def _zip(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return path


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, _zstd, bytes])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_compressed_file_is_known_by_its_content(
    tmp_path: Path, compress: Callable[[bytes], bytes], name: str
) -> None:
    (tmp_path / name).write_bytes(compress(ROWS))
    with open_bytes(tmp_path / name) as file:
        assert file.read() == ROWS
    table = find_tables(SourceRecipe(path=str(tmp_path / name)))["all"]
    assert [row["label"] for row in table.read()] == ["1", "0"]


def test_the_ending_of_a_compressor_is_not_the_files_own() -> None:
    assert [plain_file_name(name) for name in ("a.csv.gz", "a.xz", "a.csv")] == ["a.csv", "a", "a.csv"]


def test_one_table_in_an_archive_is_read(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", reviews__all_DOT_csv=ROWS, README_DOT_md=b"# words", __MACOSX__x_DOT_csv=b"\0")
    tables = find_tables(SourceRecipe(path=str(path)))
    assert [row["text"] for row in tables["all"].read()] == ["fine film", "bad film"]


def test_an_archive_with_splits_is_like_a_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("set/train.csv", "set/dev.csv", "set/.DS_Store", "set/readme.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(ROWS)
            archive.addfile(member, io.BytesIO(ROWS))
    assert set(find_tables(SourceRecipe(path=str(tmp_path / "a.tar.gz")))) == {"train", "validation"}
    (tmp_path / "only").mkdir()
    (tmp_path / "a.tar.gz").rename(tmp_path / "only" / "a.tgz")
    assert set(find_tables(SourceRecipe(path=str(tmp_path / "only")))) == {"train", "validation"}


def test_archives_named_by_their_split_are_splits(tmp_path: Path) -> None:
    (tmp_path / "zips").mkdir()
    for name in ("train", "test"):
        _zip(tmp_path / "zips" / f"{name}.zip", rows_DOT_csv=ROWS)
    assert list(find_tables(SourceRecipe(path=str(tmp_path / "zips")))) == ["train", "test"]


def test_several_tables_in_an_archive_are_listed(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", films_DOT_csv=ROWS, books_DOT_csv=b"title,year\nx,1\ny,2\n")
    with pytest.raises(
        DataError, match=r"a\.zip has several files.*books\.csv \(title, year\); films\.csv.*data\.splits"
    ):
        find_tables(SourceRecipe(path=str(path)))
    tables = find_tables(SourceRecipe(path=str(path), splits={"train": "films.csv"}))
    assert len(list(tables["train"].read())) == 2


def test_an_archive_is_unpacked_once_and_nothing_leaves_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../evil.csv", ROWS)
        archive.writestr("/etc/evil.csv", ROWS)
        archive.writestr("good.csv", ROWS)
    folder = unpack(path)
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["good.csv"]
    assert unpack(path) == folder
    assert not list(tmp_path.rglob("evil.csv"))


def test_a_spreadsheet_is_no_archive(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    openpyxl.Workbook().save(tmp_path / "a.xlsx")
    assert not is_archive(tmp_path / "a.xlsx")


def test_text_called_tar_is_text(tmp_path: Path) -> None:
    (tmp_path / "dev.tar").write_text("kwira\n", "utf-8")
    assert not is_archive(tmp_path / "dev.tar")


def test_a_corrupted_archive_is_named(tmp_path: Path) -> None:
    whole = _zip(tmp_path / "a.zip", a_DOT_csv=ROWS * 1000).read_bytes()
    (tmp_path / "b.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"b\.zip can't be unpacked"):
        find_tables(SourceRecipe(path=str(tmp_path / "b.zip")))


def test_errors_name_the_archive(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", a_DOT_csv=b"dog,perro\ncat,gato\n")
    with pytest.raises(DataError, match=r"a\.zip/a\.csv: the first line may be a header"):
        list(find_tables(SourceRecipe(path=str(path)))["all"].read())
