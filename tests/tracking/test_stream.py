from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile
from seqfit.rundir.records import EvaluationRecord
from seqfit.tracking.track import HELD_SECONDS, Stream
from tests.tracking.records import START, sample, step_record, write_records


def reported(stream: Stream, *, now: float = START, final: bool = False) -> list[tuple[str, int, float]]:
    return [(entry.kind, entry.step, entry.time - START) for entry in stream.read(now=now, final=final)]


def test_records_come_in_the_order_of_time_with_the_step_they_belong_to(run_path: Path) -> None:
    assert reported(Stream(run_path), final=True) == [
        ("evaluation", 0, 1),
        ("sample", 0, 5),
        ("step", 10, 10),
        ("sample", 10, 11),
        ("event", 10, 12),
        ("sample", 10, 12),
        ("step", 20, 13),
        ("sample", 20, 13.5),
        ("evaluation", 20, 14),
    ]


def test_a_growing_run_gives_the_same_stream_as_a_finished_one(tmp_path: Path, run_path: Path) -> None:
    growing, seen = Stream(tmp_path), []
    write_records(tmp_path, files.TELEMETRY, [sample(START + second, 0.1) for second in (5, 11)])
    seen += reported(growing)  # nothing: the step that these belong to is not known yet
    assert seen == []
    write_records(tmp_path, files.STEPS, [step_record(10, START + 10)])
    seen += reported(growing)
    assert seen == [("sample", 0, 5), ("step", 10, 10)]
    write_records(tmp_path, files.TELEMETRY, [sample(START + 12, 0.1), sample(START + 13.5, 0.1)])
    write_records(tmp_path, files.STEPS, [step_record(20, START + 13)])
    seen += reported(growing) + reported(growing, final=True)
    assert seen == [row for row in reported(Stream(run_path), final=True) if row[0] in ("step", "sample")]


def test_what_a_hanging_run_was_sampled_at_is_not_held_for_ever(tmp_path: Path) -> None:
    write_records(tmp_path, files.TELEMETRY, [sample(START, 0.1)])
    stream = Stream(tmp_path)
    assert reported(stream, now=START + HELD_SECONDS - 1) == []
    assert reported(stream, now=START + HELD_SECONDS + 1) == [("sample", 0, 0)]


def test_steps_done_again_and_splits_scored_again_are_left_out(tmp_path: Path) -> None:
    redone = [step_record(step, START + place) for place, step in enumerate((10, 20, 10, 20, 30))]
    write_records(tmp_path, files.STEPS, redone)
    again = [EvaluationRecord(step, split, 1.0, {}, 1, 1.0, START) for step, split in ((20, "a"), (10, "a"), (10, "b"))]
    write_records(tmp_path, files.EVALUATIONS, again)
    rows = reported(Stream(tmp_path), final=True)
    assert [step for kind, step, _ in rows if kind == "step"] == [10, 20, 30]
    assert [step for kind, step, _ in rows if kind == "evaluation"] == [20, 10]


def test_a_record_says_how_many_steps_it_sums_up(run_path: Path) -> None:
    entries = Stream(run_path).read(now=START, final=True)
    assert [entry.steps for entry in entries if entry.kind == "step"] == [10, 10]


def test_an_incomplete_line_is_left_for_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    tail = RecordFile(file)
    assert tail.read_new() == []
    file.write_bytes('{"time": 1}\n{"time": 2, "message": "ñ'.encode()[:-1])  # truncated inside a character
    assert tail.read_new() == [{"time": 1}]
    file.write_bytes('{"time": 1}\n{"time": 2, "message": "ñ"}\n'.encode())
    assert tail.read_new() == [{"time": 2, "message": "ñ"}]
    assert tail.read_new() == []


@pytest.mark.parametrize("line", [b"{half\n", b"[1]\n", b"\xff\n"])
def test_a_corrupted_line_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"time": 1}\n' + line)
    with pytest.raises(RunError, match="line 2"):
        RecordFile(tmp_path / "x.jsonl").read_new()
