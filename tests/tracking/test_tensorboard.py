from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seqfit.tracking.track import export_runs
from seqfit.tracking.tracker import open_tracker
from tests.tracking.records import START

pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'seqfit[tensorboard]' has it")


def export(run_path: Path) -> Path:
    (sent,) = export_runs([run_path], partial(open_tracker, "tensorboard"), "p")
    return Path(sent.place)


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))


def test_scalars_read_back_have_the_records_steps_and_times(run_path: Path) -> None:
    found = read(export(run_path))
    losses = [(event.step, event.wall_time, event.value) for event in found.Scalars("train/loss")]
    assert losses == [(10, START + 10, 0.5), (20, START + 13, 0.25)]
    assert [event.step for event in found.Scalars("gpu/0/busy_share")] == [0, 10, 10, 20]
    assert [event.wall_time for event in found.Scalars("final/test/f1")] == [START + 15]


def test_events_and_config_are_texts(run_path: Path) -> None:
    found = read(export(run_path))
    (note,) = found.Tensors("events/data")
    assert (note.step, note.wall_time) == (10, START + 12)
    assert note.tensor_proto.string_val == [b"3 rows were truncated"]
    (config,) = found.Tensors("config")
    assert b"| recipe.train.steps | 20 |" in config.tensor_proto.string_val[0]
    assert "_hparams_/session_start_info" in found.Tags()["tensors"]


def test_a_second_export_replaces_the_first(run_path: Path, tmp_path: Path) -> None:
    first, second = export(run_path), export(run_path)
    assert first == second == next((tmp_path / "logs" / "p").iterdir())
    assert len(read(second).Scalars("train/loss")) == 2


def test_no_secret_is_in_the_file(run_path: Path) -> None:
    (file,) = export(run_path).iterdir()
    assert b"hunter2" not in file.read_bytes()
    assert b"***" in file.read_bytes()
