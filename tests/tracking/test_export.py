from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.rundir import files
from seqfit.tracking import track as export
from seqfit.tracking.track import Following, Sent, export_runs, follow_runs
from tests.tracking.records import START, Recorder, sample, start_run, step_record, write_records


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "POLL_SECONDS", 0.01)


def test_a_run_is_sent_whole_at_its_own_steps_and_times(run_path: Path, recorder: Recorder) -> None:
    (sent,) = export_runs([run_path], recorder, "p")
    assert sent == Sent(run_path, "finished", 9, "nowhere")
    got = recorder.only
    assert got.points["train/loss"] == [(10, START + 10, 0.5), (20, START + 13, 0.25)]
    assert got.points["validation/f1"] == [(0, START + 1, 1.0), (20, START + 14, 60.0)]
    assert [step for step, _, _ in got.points["gpu/0/busy_share"]] == [0, 10, 10, 20]
    assert got.notes == [("data", "3 rows were truncated", 10, START + 12)]
    assert got.end == ("finished", START + 15, {"final/test/f1": 58.5})
    assert got.settings["recipe.train.steps"] == 20
    for points in got.points.values():
        assert [step for step, _, _ in points] == sorted(step for step, _, _ in points)


def test_what_a_tool_has_and_can_not_replace_is_not_sent_again(run_path: Path) -> None:
    recorder = Recorder(sent_until=START + 12)
    (sent,) = export_runs([run_path], recorder, "p")
    assert sent.records == 3
    assert recorder.only.points["train/loss"] == [(20, START + 13, 0.25)]


def test_a_missing_run_is_found_before_anything_is_sent(run_path: Path, tmp_path: Path, recorder: Recorder) -> None:
    with pytest.raises(RunError, match=files.MANIFEST):
        export_runs([run_path, tmp_path / "none"], recorder, "p")
    assert recorder.opened == []


def test_a_run_that_goes_on_is_sent_as_far_as_it_is(tmp_path: Path, recorder: Recorder) -> None:
    start_run(tmp_path / "run")
    write_records(tmp_path / "run", files.STEPS, [step_record(10, START)])
    (sent,) = export_runs([tmp_path / "run"], recorder, "p")
    assert (sent.status, sent.records) == ("running", 1)
    assert recorder.only.end == ("running", None, {})


def test_following_waits_for_a_run_and_ends_with_it(tmp_path: Path, recorder: Recorder) -> None:
    path = tmp_path / "run"

    def write() -> None:
        time.sleep(0.05)
        writer = start_run(path)
        for step in (10, 20, 30):
            write_records(path, files.STEPS, [step_record(step, START + step)])
            time.sleep(0.03)
        writer.write_manifest(status="failed", ended=START + 31)

    thread = threading.Thread(target=write)
    thread.start()
    (sent,) = follow_runs([Following(path, recorder, "p", patience_seconds=20)])
    thread.join()
    assert (sent.status, sent.records) == ("failed", 3)
    assert [step for step, _, _ in recorder.only.points["train/loss"]] == [10, 20, 30]
    assert recorder.only.flushed > 3  # it was sent while it went on


def test_a_run_that_died_is_sent_to_its_last_record(tmp_path: Path, recorder: Recorder) -> None:
    start_run(tmp_path)
    write_records(tmp_path, files.STEPS, [step_record(10, START)])
    write_records(tmp_path, files.TELEMETRY, [sample(time.time(), 0.5)])
    (sent,) = follow_runs([Following(tmp_path, recorder, "p", patience_seconds=0.1)])
    assert (sent.status, sent.records) == ("died", 2)
    assert recorder.only.end == ("died", None, {})


def test_a_run_that_never_comes_is_an_error(tmp_path: Path, recorder: Recorder) -> None:
    with pytest.raises(RunError, match=files.MANIFEST):
        follow_runs([Following(tmp_path / "none", recorder, "p", patience_seconds=0.05)])


def test_several_runs_are_followed_at_once(run_path: Path, tmp_path: Path, recorder: Recorder) -> None:
    start_run(tmp_path / "dead")
    folders = [tmp_path / "dead", run_path]
    sent = follow_runs([Following(folder, recorder, "p", patience_seconds=0.1) for folder in folders])
    assert [(one.folder.name, one.status) for one in sent] == [("demo", "finished"), ("dead", "died")]


def test_ctrl_c_sends_what_was_written(tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(tmp_path)
    pauses = _interrupt_at_the_second()
    monkeypatch.setattr(export.time, "sleep", lambda _: next(pauses))
    write_records(tmp_path, files.TELEMETRY, [sample(time.time(), 0.5)])  # held back until then
    with pytest.raises(KeyboardInterrupt):
        follow_runs([Following(tmp_path, recorder, "p")])
    assert len(recorder.only.points["gpu/0/busy_share"]) == 1
    assert recorder.only.end == ("running", None, {})


def _interrupt_at_the_second() -> Iterator[None]:
    yield
    raise KeyboardInterrupt
