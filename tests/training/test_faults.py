"""What goes wrong around a run: disks, files, other processes, clocks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import seqfit
from seqfit.cache import cache_root
from seqfit.errors import RunError, Stopped, TrainingFailed
from seqfit.rundir import files
from seqfit.rundir.reader import Run
from seqfit.rundir.records import EventRecord
from seqfit.rundir.writer import RunWriter
from seqfit.training import snapshot_files as snapshot_module
from seqfit.training.snapshot_files import find_snapshots
from seqfit.training.view import SilentView

Recipe = dict[str, Any]

# What goes wrong here goes wrong outside of both, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


def fail_with(number: int) -> Any:
    def fail(*_arguments: Any, **_settings: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_full_disk_ends_the_run_and_the_snapshot_before_resumes(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word_recipe["train"]["snapshot"] = {"every_steps": 3}
    whole = seqfit.train(word_recipe, out=tmp_path / "whole")
    write = snapshot_module.save_file

    def fail_at_9(tensors: Any, path: Path) -> None:
        if "step-00000009" in str(path):
            path.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_module, "save_file", fail_at_9)
        with pytest.raises(TrainingFailed, match=r"No space left.*Make room.*--resume"):
            seqfit.train(word_recipe, out=tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.status == "failed"
    assert [path.name for path in find_snapshots(run.path)] == ["step-00000006", "step-00000003"]
    assert not list((run.path / files.SNAPSHOTS).glob(".*"))
    resumed = seqfit.train(run.path, resume=True)
    assert [r["loss"] for r in resumed.steps()] == [r["loss"] for r in whole.steps()]


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/mounts").exists(), reason="needs root to mount a tmpfs")
def test_a_really_full_disk_is_an_error_in_three_parts(word_recipe: Recipe, tmp_path: Path) -> None:
    """A tmpfs of 1 MiB: the first snapshots fit, a later one does not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("a tmpfs can't be mounted here")
    try:
        word_recipe["train"] |= {"steps": 30, "snapshot": {"every_steps": 1, "keep": 50}}
        with pytest.raises(TrainingFailed, match="No space left"):
            seqfit.train(word_recipe, out=disk / "run")
        whole = find_snapshots(disk / "run")
        assert whole
        for folder in whole:
            snapshot_module.load_snapshot(folder)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_records_that_can_not_be_written_end_the_run_in_three_parts(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.rundir import writer

    append = writer.append_record

    def fail_on_steps(stream: Any, record: dict[str, Any]) -> None:
        if "gradient_norm" in record:
            fail_with(errno.ENOSPC)()
        append(stream, record)

    monkeypatch.setattr(writer, "append_record", fail_on_steps)
    with pytest.raises(TrainingFailed, match=r"steps.jsonl.*can't be written.*--resume"):
        seqfit.train(word_recipe, out=tmp_path / "run")


def test_a_disk_that_stays_full_is_reported_once_and_by_its_first_error(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.rundir import atomic, writer

    append, is_full = writer.append_record, []

    def fail_from_the_first_step_on(stream: Any, record: dict[str, Any]) -> None:
        if "gradient_norm" in record or is_full:
            is_full.append(True)
            fail_with(errno.ENOSPC)()
        append(stream, record)

    seen = []

    class Heard(SilentView):
        def event(self, record: EventRecord) -> None:
            seen.append(record.message)

    monkeypatch.setattr(writer, "append_record", fail_from_the_first_step_on)
    monkeypatch.setattr(
        atomic, "replace_file", lambda *paths: fail_with(errno.ENOSPC)() if is_full else os.replace(*paths)
    )
    with pytest.raises(TrainingFailed, match=r"steps\.jsonl' can't be written .*run: seqfit train .* --resume"):
        seqfit.train(word_recipe, out=tmp_path / "run", view=Heard())
    assert len(is_full) > 1  # the event of it could not be written either
    assert not any("can't be written" in message for message in seen)


def test_a_second_process_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    writer.write_manifest(status="running")
    script = (
        "import sys\nfrom pathlib import Path\nfrom seqfit.errors import RunError\n"
        "from seqfit.rundir.writer import RunWriter\n"
        "try:\n    RunWriter.reopen(Path(sys.argv[1]))\nexcept RunError as error:\n    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(writer.path)], capture_output=True, text=True, timeout=400, check=False
    )
    assert "another process is writing" in done.stderr
    writer.close()
    assert subprocess.run([sys.executable, "-c", script, str(writer.path)], timeout=400, check=False).returncode == 0


def test_data_that_is_removed_during_training_does_not_matter(word_recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for path in Path(word_recipe["data"]["path"]).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    word_recipe["data"]["path"] = str(folder)

    class Delete(SilentView):
        def advance(self, step: int) -> None:
            for path in folder.iterdir():
                path.unlink()

    assert seqfit.train(word_recipe, out=tmp_path / "run", view=Delete()).status == "finished"


def test_a_clock_that_jumps_back_changes_no_duration(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begin = time.time, time.time()
    monkeypatch.setattr(time, "time", lambda: real() - (3600 if real() > begin + 0.3 else 0))
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    assert run.status == "finished"
    assert all(record["step_seconds"] > 0 for record in run.steps())
    seqfit.report(run.path)


def test_a_killed_sampler_does_not_end_the_run(word_recipe: Recipe, tmp_path: Path) -> None:
    """Its own sampler: other children of this process belong to other tests."""
    killed: list[int] = []

    class Kill(SilentView):
        def advance(self, step: int) -> None:
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.ZombieProcess):  # killed at the step before
                    if str(tmp_path / "run") in child.cmdline():
                        child.kill()
                        killed.append(child.pid)

    word_recipe["strategy"] = {"telemetry_hz": 10.0}
    assert seqfit.train(word_recipe, out=tmp_path / "run", view=Kill()).status == "finished"
    assert killed


@pytest.mark.parametrize("damage", ["truncated", "empty", "no facts", "facts", "ids"])
def test_a_damaged_cache_is_rebuilt_with_an_event(word_recipe: Recipe, tmp_path: Path, damage: str) -> None:
    first = seqfit.train(word_recipe, out=tmp_path / "first")
    for entry in (cache_root() / "tokenized").iterdir():
        rows, facts = entry / "rows.arrow", entry / "facts.json"
        if damage == "truncated":
            rows.write_bytes(rows.read_bytes()[:-20])
        elif damage == "empty":
            rows.write_bytes(b"")
        elif damage == "no facts":
            facts.unlink()
        elif damage == "ids":  # readable, and yet another text
            source_ids = pa.ipc.open_file(str(rows)).get_batch(0).column("source_ids").values.to_numpy()[:3].tobytes()
            content = rows.read_bytes()
            assert source_ids in content
            rows.write_bytes(content.replace(source_ids, bytes(len(source_ids))))
        else:
            facts.write_text('{"rows": 1')
    second = seqfit.train(word_recipe, out=tmp_path / "second")
    assert [event for event in second.events() if "corrupted, tokenizing again" in event["message"]]
    assert [record["loss"] for record in first.steps()] == [record["loss"] for record in second.steps()]


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", [files.MANIFEST, files.RECIPE, files.STRATEGY])
def test_a_run_directory_without_one_of_its_files_is_an_error_of_three_parts(
    word_recipe: Recipe, tmp_path: Path, name: str
) -> None:
    class Stop(SilentView):
        def advance(self, step: int) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        seqfit.train(word_recipe, out=tmp_path / "run", view=Stop())
    for content in ("", "{", "[1"):
        (tmp_path / "run" / name).write_text(content)
        with pytest.raises(seqfit.SeqfitError):
            seqfit.train(tmp_path / "run", resume=True)
    (tmp_path / "run" / name).unlink()
    with pytest.raises(seqfit.SeqfitError):
        seqfit.train(tmp_path / "run", resume=True)


def test_a_directory_of_a_run_that_barely_started_is_used_only_by_a_resume(word_recipe: Recipe, tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / files.LOCK).touch()
    (place / files.RECIPE).write_text("half")
    with pytest.raises(RunError, match="already exists"):
        seqfit.train(word_recipe, out=place)
    assert seqfit.train(word_recipe, out=place, resume=True).status == "finished"


def test_secrets_of_the_command_line_are_not_in_the_manifest(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_" + "a1B2" * 8
    monkeypatch.setattr(
        sys, "argv", ["seqfit", "train", "demo", "--hf-token", secret, f"data.path=http://me:{secret}@x/y"]
    )
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    assert secret not in json.dumps(run.manifest)
    assert "***" in run.manifest["command"]
