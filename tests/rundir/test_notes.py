from __future__ import annotations

from pathlib import Path

from seqfit.rundir import EventKind, RankNotes, Run, RunWriter, optional_work
from seqfit.rundir.records import OutOfMemoryEvent


def test_a_note_of_another_process_becomes_the_event_that_it_is(tmp_path: Path) -> None:
    event = OutOfMemoryEvent(7, "forward", "restart", micro_batch_tokens=64, rank=1, examples=2, tokens=128)
    notes = RankNotes(tmp_path)
    notes.write(1, event)
    writer = RunWriter(tmp_path)
    writer.write_manifest(status="running")
    for note in notes.read():
        writer.event(note)
    writer.close()
    notes.remove()
    (found,) = Run(tmp_path).events()
    assert (found["kind"], found["message"]) == ("out-of-memory", event.message)
    assert (found["data"]["step"], found["data"]["micro_batch_tokens"]) == (7, 64)
    assert notes.read() == []


def test_a_failure_of_optional_work_is_an_event_with_its_cause() -> None:
    reported: list[tuple[str, str]] = []
    with optional_work(EventKind.TELEMETRY, "nothing is sampled", lambda *event: reported.append(event)):
        raise PermissionError("no")
    ((kind, message),) = reported
    assert kind == "telemetry"
    assert message.startswith("nothing is sampled: PermissionError: no")
