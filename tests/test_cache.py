from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from seqfit import cache
from seqfit.cache import JsonCache, cache_root, file_digest, find_entry, new_entry
from seqfit.errors import DataError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_in_the_home_folder_unless_the_variable_is_set(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_root() == root
    monkeypatch.setenv("SEQFIT_CACHE", "")
    assert cache_root() == Path.home() / ".cache" / "seqfit"


def test_an_entry_is_there_when_its_block_has_ended() -> None:
    with new_entry("k") as folder:
        (folder / "rows").write_text("whole", "utf-8")
        assert find_entry("k") is None
    found = find_entry("k")
    assert found is not None
    assert (found / "rows").read_text("utf-8") == "whole"


def test_an_interrupted_write_does_not_count_and_leaves_nothing(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _write_half("k")
    assert find_entry("k") is None
    assert list((root / "tokenized").iterdir()) == []


def _write_half(key: str) -> None:
    with new_entry(key) as folder:
        (folder / "rows").write_text("half", "utf-8")
        raise KeyboardInterrupt


def test_a_draft_of_a_killed_process_does_not_count(root: Path) -> None:
    (root / "tokenized" / ".k-dead").mkdir(parents=True)
    assert find_entry("k") is None
    with new_entry("k") as folder:
        (folder / "rows").write_text("whole", "utf-8")
    assert find_entry("k") is not None


def test_the_first_of_two_writers_wins_and_neither_fails(root: Path) -> None:
    with new_entry("k") as slow:
        with new_entry("k") as fast:
            (fast / "rows").write_text("fast", "utf-8")
        (slow / "rows").write_text("slow", "utf-8")
    found = find_entry("k")
    assert found is not None
    assert (found / "rows").read_text("utf-8") == "fast"
    assert [path.name for path in (root / "tokenized").iterdir()] == ["k"]


def test_a_full_disk_says_which_variable_to_set() -> None:
    with pytest.raises(DataError, match="SEQFIT_CACHE"), new_entry("k"):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(ConnectionError), new_entry("k"):
        raise ConnectionError("something else stays what it is")


def _make_old(path: Path) -> None:
    then = time.time() - 60
    os.utime(path, (then, then))


def test_a_file_is_hashed_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one", "utf-8")
    _make_old(path)
    first = file_digest(path)
    with monkeypatch.context() as patched:
        patched.setattr(cache, "_hash_content", None)
        assert file_digest(path) == first
    path.write_text("two", "utf-8")
    assert file_digest(path) != first


def test_a_file_of_just_now_is_not_remembered(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one", "utf-8")
    file_digest(path)
    assert not (root / "digests").exists()


def test_a_corrupted_note_is_rewritten(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one", "utf-8")
    _make_old(path)
    first = file_digest(path)
    note = next((root / "digests").iterdir())
    note.write_text("{", "utf-8")
    assert file_digest(path) == first
    assert first in note.read_text("utf-8")


def test_what_a_killed_process_left_goes_after_a_day_and_work_in_progress_stays() -> None:
    with new_entry("first") as draft:
        (draft / "rows").write_text("x")
        entries = draft.parent
    old, fresh = entries / ".killed-1", entries / ".working-2"
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "rows").write_text("half")
    two_days_ago = time.time() - 2 * 86_400
    for path in (old / "rows", old):
        os.utime(path, (two_days_ago, two_days_ago))
    with new_entry("second") as draft:
        (draft / "rows").write_text("y")
    assert not old.exists()
    assert fresh.exists()
    assert find_entry("first") is not None


def test_a_json_value_is_found_again_and_replaced_as_a_whole(root: Path) -> None:
    stored = JsonCache("rates")
    assert stored.get("cpu") is None
    stored.put("cpu", {"flops": 1.0})
    stored.put("cpu", {"flops": 2.0})
    assert stored.get("cpu") == {"flops": 2.0}
    assert [path.name for path in (root / "rates").iterdir()] == ["cpu.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_corrupted_json_value_counts_as_none_but_differs_from_a_missing_one_when_read(
    root: Path, content: bytes
) -> None:
    stored = JsonCache("rates")
    stored.put("cpu", 1)
    (root / "rates" / "cpu.json").write_bytes(content)
    assert stored.get("cpu") is None
    with pytest.raises(ValueError, match=r"Expecting|utf-8"):
        stored.read("cpu")
    with pytest.raises(FileNotFoundError):
        stored.read("gpu")


def test_a_new_version_of_a_json_cache_does_not_read_the_old_one() -> None:
    JsonCache("plans").put("key", [1])
    assert JsonCache("plans", version=2).get("key") is None
    assert JsonCache("plans").get("key") == [1]
