from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from seqfit.errors import TrainingFailed
from seqfit.training import snapshot_files as module
from seqfit.training.snapshot_files import Snapshot, SnapshotWriter, find_snapshots

TAKEN = Snapshot(7, {"weight": torch.ones(3)}, {"is_best": False})


def test_a_snapshot_that_training_waits_for_ends_when_training_continues(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path, keep=1, in_background=False)
    before = time.time()
    writer.write(TAKEN, began=before - 5)
    (record,) = writer.take_written()
    assert (record.step, record.began) == (7, before - 5)
    assert before <= record.ended <= time.time()
    assert record.waited_seconds == record.ended - record.began
    assert writer.take_written() == []


def test_a_background_snapshot_ends_when_it_is_on_disk_and_is_recorded_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, save = threading.Event(), module.save_file

    def save_later(tensors: dict[str, torch.Tensor], path: Path) -> None:
        go_on.wait(30)
        save(tensors, path)

    monkeypatch.setattr(module, "save_file", save_later)
    writer = SnapshotWriter(tmp_path, keep=1, in_background=True)
    writer.write(TAKEN, began=time.time())
    training_goes_on = time.time()
    assert writer.take_written() == []
    time.sleep(0.05)
    go_on.set()
    writer.close()
    (record,) = writer.take_written()
    assert record.began + record.waited_seconds <= training_goes_on
    assert record.ended >= training_goes_on + 0.05
    assert len(find_snapshots(tmp_path)) == 1


def test_a_failed_snapshot_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensors: dict[str, torch.Tensor], path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", fail)
    writer = SnapshotWriter(tmp_path, keep=1, in_background=True)
    writer.write(TAKEN, began=time.time())
    with pytest.raises(TrainingFailed) as ended:
        writer.close()
    assert str(ended.value).count("No space left") == 1
    assert writer.take_written() == []
