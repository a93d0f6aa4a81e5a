from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.rundir import Run, RunWriter, files
from seqfit.rundir.reader import RecordFile, nearby_runs


@pytest.fixture
def run(tmp_path: Path) -> Run:
    RunWriter.create(tmp_path / "run").write_manifest(status="finished")
    return Run(tmp_path / "run")


def test_a_folder_that_is_no_run_is_refused_and_nearby_runs_are_named(run: Run) -> None:
    with pytest.raises(RunError, match=r"has no manifest\.json\. A run directory is .*\. Give one of: ") as caught:
        Run(run.path.parent / "rum")
    assert str(run.path) in str(caught.value)


def test_where_no_run_is_near_the_message_says_to_train_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="train one first"):
        Run(tmp_path / "nothing" / "here")


def test_the_newest_five_runs_are_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the working directory may have runs of its own
    place = tmp_path / "kept"  # its parent is searched, too, and other tests' folders lie beside this one's
    for number in range(7):
        RunWriter.create(place / f"run{number}").write_manifest()
        os.utime(place / f"run{number}" / files.MANIFEST, (number, number))
    names = [Path(found).name for found in nearby_runs(place)]
    assert names == ["run6", "run5", "run4", "run3", "run2"]


@pytest.mark.parametrize("truncated", [b'{"step": 3, "lo', b"\x00\x00\x00", '{"message": "ñ'.encode()[:-1]])
def test_a_truncated_last_line_is_ignored(tmp_path: Path, truncated: bytes) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + truncated)
    assert RecordFile(path).read() == [{"step": 1}, {"step": 2}]


def test_a_last_line_that_lacks_only_its_newline_counts(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    assert RecordFile(path).read() == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize("damage", [b'{"step": 2, "lo', b"\xff\xfe"])
def test_a_corrupted_middle_line_is_an_error_in_three_parts_with_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3}\n')
    with pytest.raises(
        RunError, match=r"steps\.jsonl, line 2 is not a record .*; only the last may be truncated\. .*remove that"
    ):
        RecordFile(path).read()


def test_a_file_that_was_never_written_has_no_records(run: Run) -> None:
    assert run.steps() == run.evaluations() == run.events() == []
    assert run.evaluation("test") is None
    assert run.evaluated_splits() == []


@pytest.mark.parametrize("damage", [b'{"status": "fin', b"[]", b"\xff"])
def test_a_corrupted_manifest_is_an_error_in_three_parts(run: Run, damage: bytes) -> None:
    (run.path / files.MANIFEST).write_bytes(damage)
    with pytest.raises(RunError, match=r"manifest\.json is corrupted \(.+\)\. .* written as a whole\. .*restore it"):
        _ = run.status


def test_evaluated_splits_are_found_by_their_files(run: Run) -> None:
    for split, before in (("test", False), ("validation", True)):
        (run.path / files.evaluation(split, before=before)).write_text('{"metrics": {}}')
    assert run.evaluated_splits() == ["test"]
    assert run.evaluation("test") == {"metrics": {}}


def test_a_run_without_a_checkpoint_says_how_far_it_got(run: Run) -> None:
    with pytest.raises(RunError, match=r"has no checkpoint folder \(status: finished\)\. .*first evaluation"):
        _ = run.checkpoint


def test_a_run_killed_while_it_swapped_checkpoints_still_has_the_old_one(run: Run) -> None:
    (run.path / ".checkpoint.old").mkdir()
    (run.path / ".checkpoint.new").mkdir()
    assert run.checkpoint == run.path / ".checkpoint.old"
    (run.path / "checkpoint").mkdir()
    assert run.checkpoint == run.path / "checkpoint"
    assert repr(run) == f"Run('{run.path}', finished)"


def test_a_run_is_being_written_as_long_as_its_lock_is_held(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    assert RunWriter.is_writing(tmp_path / "run")
    writer.close()
    assert not RunWriter.is_writing(tmp_path / "run")
    os.unlink(tmp_path / "run" / files.LOCK)
    assert not RunWriter.is_writing(tmp_path / "run")


def test_looking_at_a_lock_does_not_keep_it(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    RunWriter.is_writing(tmp_path / "run")
    (tmp_path / "run" / files.MANIFEST).write_text("{}")
    RunWriter.reopen(tmp_path / "run").close()
