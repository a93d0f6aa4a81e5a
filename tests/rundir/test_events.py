from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from seqfit.rundir import EventKind, Run, RunWriter
from seqfit.rundir.events import (
    EVENTS,
    FallbackEvent,
    InterruptedEvent,
    NonFiniteEvent,
    OutOfMemoryEvent,
    PredictionEvent,
    ResumeEvent,
    find_smaller_micro_batches,
)
from seqfit.rundir.notes import optional_work, read_notes, remove_notes, write_note


def test_every_kind_with_data_has_one_class() -> None:
    kinds = [event.kind for event in EVENTS]
    assert len(set(kinds)) == len(kinds)
    assert all(is_dataclass(event) and fields(event) for event in EVENTS)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            OutOfMemoryEvent(12, "backward", "retry", micro_batch_tokens=2048, rank=1, examples=8, tokens=4096),
            "OOM on rank 1 in the backward pass of step 12 (micro-batch of 8 examples, 4,096 tokens); retrying the "
            "same global batch with micro-batches of at most 2,048 tokens",
        ),
        (
            OutOfMemoryEvent(11, "optimizer", "restore", micro_batch_tokens=2048, failed_step=12),
            "OOM in the update of step 12, which left weights half updated; back to the snapshot of step 10, with "
            "micro-batches of at most 2,048 tokens",
        ),
        (
            OutOfMemoryEvent(20, "evaluation", "retry", evaluation_tokens=512, evaluation_rows=4),
            "OOM in the evaluation of step 20; retrying with batches of at most 512 tokens, and 4 rows decoded at once",
        ),
        (NonFiniteEvent(3, "skipped", {"loss": "nan"}, [5]), "loss is nan at step 3; the update is skipped"),
        (
            NonFiniteEvent(3, "retried", precision="bf16"),
            "non-finite values in bf16 at step 3; retrying the step in fp32",
        ),
        (ResumeEvent(0), "resumed from the start: there is no snapshot yet"),
        (
            InterruptedEvent("SIGTERM", "best"),
            "stopped by SIGTERM; the checkpoint is that of the best evaluation so far",
        ),
        (FallbackEvent("batching", "padded batches", "no packing for Marian"), "padded batches: no packing for Marian"),
        (
            PredictionEvent(2**30, 2**30, "allocated in step 4, the most of all steps", 0.4, None),
            "peak memory 1.0 GiB predicted, 1.0 GiB allocated in step 4, the most of all steps; time per step 400 ms "
            "predicted, not measured",
        ),
    ],
)
def test_the_message_is_made_from_the_fields(event: Any, message: str) -> None:
    assert event.message == message


def test_a_resume_splits_micro_batches_as_the_events_after_its_snapshot_say() -> None:
    def event(step: int, tokens: int | None, kind: str = "out-of-memory") -> dict[str, Any]:
        return {"kind": kind, "message": "", "data": {"step": step, "micro_batch_tokens": tokens}}

    events = [event(3, 900), event(7, 400), event(7, 200), event(8, None), event(9, 100, "plan"), {"kind": "plan"}]
    assert find_smaller_micro_batches(events, after=3) == {7: 200}


def test_a_note_of_another_process_becomes_the_event_that_it_is(tmp_path: Path) -> None:
    event = OutOfMemoryEvent(7, "forward", "restart", micro_batch_tokens=64, rank=1, examples=2, tokens=128)
    write_note(tmp_path, 1, event)
    writer = RunWriter(tmp_path)
    writer.write_manifest(status="running")
    for note in read_notes(tmp_path):
        writer.event(note)
    writer.close()
    remove_notes(tmp_path)
    (found,) = Run(tmp_path).events()
    assert (found["kind"], found["message"]) == ("out-of-memory", event.message)
    assert find_smaller_micro_batches([found], after=0) == {7: 64}
    assert read_notes(tmp_path) == []


def test_a_failure_of_optional_work_is_an_event_with_its_cause() -> None:
    reported: list[tuple[str, str]] = []
    with optional_work(EventKind.TELEMETRY, "nothing is sampled", lambda *event: reported.append(event)):
        raise PermissionError("no")
    ((kind, message),) = reported
    assert kind == "telemetry"
    assert message.startswith("nothing is sampled: PermissionError: no")
