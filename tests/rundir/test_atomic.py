from __future__ import annotations

import os
from pathlib import Path

from seqfit.rundir.atomic import FolderDraft


def write_draft(folder: Path, text: str) -> None:
    draft = FolderDraft(folder).start()
    (draft / "inner").mkdir(parents=True)
    (draft / "inner" / "file").write_text(text)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for text in ("first", "second"):
        write_draft(folder, text)
        FolderDraft(folder).finish()
        assert (folder / "inner" / "file").read_text() == text
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_drafts_are_hidden_next_to_their_folder() -> None:
    folder = Path("runs/a/checkpoint")
    assert FolderDraft(folder).path == Path("runs/a/.checkpoint.new")
    assert FolderDraft(folder).replaced == Path("runs/a/.checkpoint.old")


def test_a_kill_between_the_two_renames_leaves_the_old_folder_which_is_restored(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    write_draft(folder, "old")
    FolderDraft(folder).finish()
    write_draft(folder, "new")
    folder.rename(FolderDraft(folder).replaced)
    draft = FolderDraft(folder).start()
    assert (folder / "inner" / "file").read_text() == "old"
    assert not draft.exists()
    assert os.listdir(tmp_path) == ["checkpoint"]
