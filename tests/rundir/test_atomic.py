from __future__ import annotations

import os
from pathlib import Path

from seqfit.rundir.atomic import draft_of, replace_folder, replaced_by, start_draft


def write_draft(folder: Path, text: str) -> None:
    draft = start_draft(folder)
    (draft / "inner").mkdir(parents=True)
    (draft / "inner" / "file").write_text(text)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for text in ("first", "second"):
        write_draft(folder, text)
        replace_folder(folder)
        assert (folder / "inner" / "file").read_text() == text
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_drafts_are_hidden_next_to_their_folder() -> None:
    folder = Path("runs/a/checkpoint")
    assert draft_of(folder) == Path("runs/a/.checkpoint.new")
    assert replaced_by(folder) == Path("runs/a/.checkpoint.old")


def test_a_kill_between_the_two_renames_leaves_the_old_folder_which_is_restored(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    write_draft(folder, "old")
    replace_folder(folder)
    write_draft(folder, "new")
    folder.rename(replaced_by(folder))
    draft = start_draft(folder)
    assert (folder / "inner" / "file").read_text() == "old"
    assert not draft.exists()
    assert os.listdir(tmp_path) == ["checkpoint"]
